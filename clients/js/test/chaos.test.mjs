// Tabs are closed, crash and freeze, a network goes and resets, an edge and a brain are killed, in
// a random order: no tab loses an event or shows one twice. That holds for the tabs that live and,
// up to their end, for those that were killed.
//
// `make tabs` takes a hundred steps (STEPS=100) through a network with a latency of 100 ms each way
// (LATENCY=100), with a disk that is slow to sync (SYNC=30), in Chromium or Firefox (BROWSER=).
// SEED= repeats the steps of a run. SAVE=1 keeps what was seen in bench/results.

import assert from 'node:assert/strict';
import { before } from 'node:test';
import { keep } from '../../../bench/lib/keep.mjs';
import { sessionsOf } from '../../../test/lib/client.mjs';
import { openBrowser, openFirefox } from '../../../test/lib/browser.mjs';
import { freeze, kill, prepare, test } from '../../../test/lib/halley.mjs';
import { network } from '../../../test/lib/network.mjs';
import { slowDisk } from '../../../test/lib/slow-disk.mjs';
import { sleep, until } from '../../../test/lib/wait.mjs';
import { endAfter } from '../../../test/lib/world.mjs';
import {
  calmOf, gapsOf, isWhole, PATIENCE_MS, publisher, randomOf, reportOf,
} from './lib/chaos.mjs';
import { crash, owns, pagesFor, processOf, tabOf, witness } from './lib/tabs.mjs';

const STEPS = Number(process.env.CHAOS_STEPS ?? 12);
const SEED = Number(process.env.CHAOS_SEED ?? Date.now() % 1_000_000);
/** Each way, with a fifth of it as jitter. */
const LATENCY_MS = Number(process.env.CHAOS_LATENCY ?? 50);
const SYNC_MS = Number(process.env.CHAOS_SYNC ?? 10);
/** A tab of Firefox can't be made to crash or to freeze alone. */
const IS_FIREFOX = process.env.CHAOS_BROWSER === 'firefox';
const TABS_MIN = 3;
const SERVER_LASTS_MS = 6_000;
/**
 * After the server or the network was away, events may be late for so long, and as long again as it
 * was away: clients come back at intervals that double.
 */
const AFTERMATH_MS = 5_000;
/** Tabs die more often than networks and servers. */
const CHANCES = ['close', 'close', 'owner', 'owner', 'owner', 'offline', 'reset', 'edge', 'brain',
  ...IS_FIREFOX ? [] : ['crash', 'crash', 'freeze', 'freeze']];
/**
 * An owner that ends is followed at once, one that freezes after 1.25 seconds and a new connection.
 * While other tests run, that would be a statement about them.
 */
const GAP_MS_MAX = Number(process.env.CHAOS_GAP_MS
  || (process.env.CHAOS_STEPS ? 2_000 + 2 * LATENCY_MS : PATIENCE_MS));
const FROZEN_MS = 4_000;

let halley;
let browser;
let between;
let pages;
before(async () => {
  halley = await prepare({ settings: { HALLEY_CORS_ORIGINS: 'localhost' } });
  if (SYNC_MS) slowDisk(halley, SYNC_MS);
  [, browser] = await Promise.all([halley.start(), IS_FIREFOX ? openFirefox() : openBrowser()]);
  between = await network({
    to: halley.publicPort, seed: SEED, latencyMs: LATENCY_MS, jitterMs: LATENCY_MS / 5,
  });
  pages = await pagesFor(halley, between.url);
});
endAfter(() => [browser, pages, between, halley]);

/**
 * What may happen, and what did: `away` are times without network or server, `frozen` those of a
 * tab that was frozen, `deaths` and `freezes` when a tab with the connection ended or froze.
 */
function stepsIn(context, tabs, random) {
  const away = [];
  const frozen = new Map();
  const deaths = [];
  const freezes = [];
  let killedAt = 0;
  /** Of the last server that was killed. */
  let back = Promise.resolve();
  const awayFrom = (since) => {
    const one = [since, Infinity];
    away.push(one);
    return () => { one[1] = 2 * Date.now() - since + AFTERMATH_MS; };
  };
  const end = async (tab, isCrash) => {
    if (await owns(tab)) deaths.push(Date.now());
    tabs.splice(tabs.indexOf(tab), 1);
    if (isCrash && !IS_FIREFOX) await crash(tab);
    await tab.close();
  };
  const owner = async () => {
    for (const tab of tabs) if (await owns(tab)) return tab;
    return tabs[0];
  };
  // An edge that doesn't last is started ever later, by the server's own rule.
  const afterRest = async (act) => {
    if (Date.now() - killedAt < SERVER_LASTS_MS) return;
    await back;
    await until('an edge', () => halley.edgePid());
    killedAt = Date.now();
    const isBack = awayFrom(killedAt);
    await act();
    back = halley.ready().then(isBack);
  };
  return {
    away,
    frozen,
    deaths,
    freezes,
    close: () => end(tabs[random(tabs.length)], false),
    crash: () => end(tabs[random(tabs.length)], true),
    owner: async () => end(await owner(), random(2) === 0),
    freeze: async () => {
      const tab = await owner();
      const pid = await processOf(browser, tab);
      const since = Date.now();
      if (await owns(tab)) freezes.push(since);
      await freeze(pid);
      await sleep(FROZEN_MS);
      kill(pid, 'SIGCONT');
      frozen.set(tab, [...frozen.get(tab) ?? [], [since, Date.now() + AFTERMATH_MS]]);
    },
    offline: async () => {
      const isBack = awayFrom(Date.now());
      if (!IS_FIREFOX) await context.setOffline(true);
      between.away();
      await sleep(random(1_500));
      between.back();
      if (!IS_FIREFOX) await context.setOffline(false);
      isBack();
    },
    reset: () => {
      awayFrom(Date.now())();
      between.reset();
    },
    edge: () => afterRest(() => kill(halley.edgePid(), 'SIGKILL')),
    brain: () => afterRest(async () => {
      await halley.killBrain();
      halley.spawn();
    }),
  };
}

/** What every tab showed, judged; gives rows for people. */
async function judge({ away, frozen, deaths, freezes }, shown, tabs, last) {
  for (const tab of tabs) {
    await until('the last event is shown', () => shown.get(tab)?.at(-1).what === last,
      PATIENCE_MS);
  }
  const all = [...shown.values()];
  const before = all.map(isWhole).reduce((one, other) => one + other, 0);
  const calm = [...shown].flatMap(([tab, one]) => calmOf([one], [...away,
    ...frozen.get(tab) ?? []]));
  const waits = (times) => {
    const gaps = gapsOf(calm, times);
    return `${gaps.length}, ${gaps[gaps.length >> 1] ?? '-'} ms, ${gaps.at(-1) ?? '-'} ms`;
  };
  const [latest] = calm.toSorted((one, other) => other.delay - one.delay);
  const longest = latest?.delay ?? 0;
  assert.ok(longest <= GAP_MS_MAX,
    `while tabs alone ended or froze, an event was ${longest} ms late, shown at ${latest?.at}; ${
      JSON.stringify({ away, deaths, freezes })}`);
  await until('one session', async () => await sessionsOf(halley, 'chaos') === 1);
  return [
    ['events published, one each 20 ms', last + 1],
    ['tabs in all, ended, ended with the connection',
      `${all.length}, ${all.length - tabs.length}, ${deaths.length}`],
    ['events shown by all tabs, by those that were killed', [all, all.filter((one) =>
      !tabs.some((tab) => shown.get(tab) === one))].map((some) => some.flat().length).join(', ')],
    ['lost, shown twice, out of order', '0, 0, 0'],
    ['shown, though they are from before the tab began', before],
    ['while tabs alone ended or froze: events shown, the longest wait',
      `${calm.length}, ${longest} ms`],
    ['the others\' wait after each owner that ended: how many, median, longest', waits(deaths)],
    ['after each owner that froze', waits(freezes)],
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
    const rows = [
      ['browser', `${IS_FIREFOX ? 'Firefox' : 'Chromium'} ${browser.version()}`],
      ['latency each way, a sync of the disk', `${LATENCY_MS} ms, ${SYNC_MS} ms`],
      ['seed, steps', `${SEED}, ${STEPS}: ${counts.join(', ')}`],
      ...await judge(steps, shown, tabs, last)];
    for (const row of rows) context.diagnostic(row.join(': '));
    if (process.env.CHAOS_SAVE) {
      const run = `${IS_FIREFOX ? 'firefox' : 'chromium'}-${LATENCY_MS}-ms-seed-${SEED}`;
      const [name, text] = reportOf(run,
        `make tabs STEPS=${STEPS} SEED=${SEED} LATENCY=${LATENCY_MS} SYNC=${SYNC_MS}`
        + `${process.env.CHAOS_GAP_MS ? ` GAP_MS=${GAP_MS_MAX}` : ''}`
        + `${IS_FIREFOX ? ' BROWSER=firefox' : ''} SAVE=1`, rows);
      keep(name, { '.md': text });
    }
  } catch (error) {
    error.message += `\n  seed ${SEED}, ${done}`;
    throw error;
  }
  await browserContext.close();
});

test('the tab with the connection ends: the others go on, soon', async (context) => {
  const browserContext = await browser.newContext();
  const shown = await witness(browserContext);
  const tabs = [];
  for (let n = 0; n < 4; n += 1) tabs.push(await tabOf(browserContext, pages, 'heir'));
  const end = publisher(halley, 'heir');
  while (tabs.length > 1) {
    await sleep(1_000);
    const tab = tabs.shift();
    await (IS_FIREFOX ? tab.close() : crash(tab));
  }
  await sleep(1_000);
  const last = await end();
  await until('the last event is shown', () => shown.get(tabs[0]).at(-1).what === last,
    PATIENCE_MS);
  const all = [...shown.values()];
  assert.equal(all.length, 4, 'tabs that ended count too');
  for (const one of all) isWhole(one);
  const longest = Math.max(...shown.get(tabs[0]).map(({ delay }) => delay));
  context.diagnostic(`the longest of ${shown.get(tabs[0]).length}: ${longest} ms`);
  assert.ok(longest <= GAP_MS_MAX, `${longest} ms`);
  await browserContext.close();
});
