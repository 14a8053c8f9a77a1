// Tabs that are closed and crash, a network that goes, an edge and a brain that are killed, in a
// random order: no tab has lost an event or shows one twice, neither those that live nor, until
// they died, those that were killed.
//
// `make tabs` does a hundred of them (STEPS=100), or the same again (SEED=…), and keeps what was
// seen in bench/results (SAVE=1).

import assert from 'node:assert/strict';
import { before } from 'node:test';
import { keep } from '../../../bench/lib/keep.mjs';
import { sessionsOf } from '../../../test/lib/client.mjs';
import { kill, test } from '../../../test/lib/halley.mjs';
import { sleep, until } from '../../../test/lib/wait.mjs';
import { endAfter, startWithBrowser } from '../../../test/lib/world.mjs';
import {
  calmOf, gapsOf, isWhole, PATIENCE_MS, publisher, randomOf, reportOf,
} from './lib/chaos.mjs';
import { crash, owns, pagesFor, tabOf, witness } from './lib/tabs.mjs';

const STEPS = Number(process.env.CHAOS_STEPS ?? 12);
const SEED = Number(process.env.CHAOS_SEED ?? Date.now() % 1_000_000);
const TABS_MIN = 3;
const SERVER_LASTS_MS = 6_000;
/** After the server or the network was away, events may be late for so long. */
const AFTERMATH_MS = 5_000;
/** Tabs die more often than networks and servers. */
const CHANCES = ['close', 'crash', 'crash', 'owner', 'owner', 'owner', 'offline', 'edge', 'brain'];
/** Where other tests run beside it, a second says something of them. */
const GAP_MS_MAX = process.env.CHAOS_STEPS ? 1_000 : PATIENCE_MS;

let halley;
let browser;
let pages;
before(async () => {
  [halley, browser] = await startWithBrowser();
  pages = await pagesFor(halley);
});
endAfter(() => [browser, pages, halley]);

/** What may happen, and what did: `away` are times without network or server. */
function stepsIn(context, tabs, random) {
  const away = [];
  const deaths = [];
  let killedAt = 0;
  const end = async (tab, isCrash) => {
    if (await owns(tab)) deaths.push(Date.now());
    tabs.splice(tabs.indexOf(tab), 1);
    if (isCrash) await crash(tab);
    await tab.close();
  };
  const owner = async () => {
    for (const tab of tabs) if (await owns(tab)) return tab;
    return tabs[0];
  };
  // An edge that doesn't last is started ever later, by the server's own rule.
  const afterRest = async (act) => {
    if (Date.now() - killedAt < SERVER_LASTS_MS) return;
    await halley.ready();
    await until('an edge', () => halley.edgePid());
    killedAt = Date.now();
    await act();
    away.push([killedAt, Date.now() + AFTERMATH_MS]);
  };
  return {
    away,
    deaths,
    close: () => end(tabs[random(tabs.length)], false),
    crash: () => end(tabs[random(tabs.length)], true),
    owner: async () => end(await owner(), random(2) === 0),
    offline: async () => {
      const since = Date.now();
      await context.setOffline(true);
      await sleep(random(1_500));
      await context.setOffline(false);
      away.push([since, Date.now() + AFTERMATH_MS]);
    },
    edge: () => afterRest(() => kill(halley.edgePid(), 'SIGKILL')),
    brain: () => afterRest(async () => {
      await halley.killBrain();
      halley.spawn();
    }),
  };
}

/** What every tab showed, judged; gives rows for people. */
async function judge({ away, deaths }, shown, tabs, last) {
  for (const tab of tabs) {
    await until('the last event is shown', () => shown.get(tab)?.at(-1).what === last,
      PATIENCE_MS);
  }
  const all = [...shown.values()];
  for (const one of all) isWhole(one);
  const calm = calmOf(all, away);
  const gaps = gapsOf(calm, deaths);
  const longest = Math.max(0, ...calm.map(({ delay }) => delay));
  assert.ok(longest <= GAP_MS_MAX, `while tabs alone died, an event was ${longest} ms late`);
  await until('one session', async () => await sessionsOf(halley, 'chaos') === 1);
  return [
    ['events published, one each 20 ms', last + 1],
    ['tabs in all, killed, killed with the connection',
      `${all.length}, ${all.length - tabs.length}, ${deaths.length}`],
    ['events shown by all tabs, by those that were killed', [all, all.filter((one) =>
      !tabs.some((tab) => shown.get(tab) === one))].map((some) => some.flat().length).join(', ')],
    ['lost, shown twice, out of order', '0, 0, 0'],
    ['while tabs alone died: events shown, the longest wait', `${calm.length}, ${longest} ms`],
    ['the others\' wait for each killed owner then: how many, median, longest',
      `${gaps.length}, ${gaps[gaps.length >> 1] ?? '-'} ms, ${gaps.at(-1) ?? '-'} ms`],
  ];
}

test('random kills of tabs, network and server: nothing lost or twice', async (context) => {
  context.diagnostic(`seed ${SEED}`);
  const random = randomOf(SEED);
  const browserContext = await browser.newContext();
  const shown = await witness(browserContext);
  const tabs = [];
  const open = async () => tabs.push(await tabOf(browserContext, pages, 'chaos', {}, false));
  const steps = stepsIn(browserContext, tabs, random);
  while (tabs.length < TABS_MIN) await open();
  const end = publisher(halley, 'chaos');
  const done = [];
  for (let step = 0; step < STEPS; step += 1) {
    const name = CHANCES[random(CHANCES.length)];
    done.push(name);
    await steps[name]();
    while (tabs.length < TABS_MIN) await open();
    await sleep(random(1_200));
  }
  const last = await end();
  try {
    const counts = [...new Set(CHANCES)].map((name) =>
      `${done.filter((one) => one === name).length} ${name}`);
    const rows = [['seed, steps', `${SEED}, ${STEPS}: ${counts.join(', ')}`],
      ...await judge(steps, shown, tabs, last)];
    for (const row of rows) context.diagnostic(row.join(': '));
    if (process.env.CHAOS_SAVE) {
      const [name, text] = reportOf(`make tabs STEPS=${STEPS} SEED=${SEED} SAVE=1`, rows);
      keep(name, { '.md': text });
    }
  } catch (error) {
    error.message += `\n  seed ${SEED}, ${done}`;
    throw error;
  }
  await browserContext.close();
});

test('who has the connection is killed: the others go on, soon', async (context) => {
  const browserContext = await browser.newContext();
  const shown = await witness(browserContext);
  const tabs = [];
  for (let n = 0; n < 4; n += 1) tabs.push(await tabOf(browserContext, pages, 'heir'));
  const end = publisher(halley, 'heir');
  while (tabs.length > 1) {
    await sleep(1_000);
    await crash(tabs.shift());
  }
  await sleep(1_000);
  const last = await end();
  await until('the last event is shown', () => shown.get(tabs[0]).at(-1).what === last,
    PATIENCE_MS);
  const all = [...shown.values()];
  assert.equal(all.length, 4, 'those that were killed count too');
  for (const one of all) isWhole(one);
  const longest = Math.max(...shown.get(tabs[0]).map(({ delay }) => delay));
  context.diagnostic(`the longest of ${shown.get(tabs[0]).length}: ${longest} ms`);
  assert.ok(longest <= GAP_MS_MAX, `${longest} ms`);
  await browserContext.close();
});
