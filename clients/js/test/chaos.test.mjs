// Tabs that are closed and crash, a network that goes, an edge and a brain that are killed, in a
// random order: no tab that lives has lost an event, or shows one twice.
//
// `make tabs` does a hundred of them (STEPS=100), or the same again (SEED=…).

import assert from 'node:assert/strict';
import { before } from 'node:test';
import { publish, sessionsOf } from '../../../test/system/lib/client.mjs';
import { kill, test } from '../../../test/system/lib/halley.mjs';
import { sleep, until } from '../../../test/system/lib/wait.mjs';
import { endAfter, startWithBrowser } from '../../../test/system/lib/world.mjs';
import { pagesFor, tabOf } from './lib/tabs.mjs';

const STEPS = Number(process.env.CHAOS_STEPS ?? 12);
const SEED = Number(process.env.CHAOS_SEED ?? Date.now() % 1_000_000);
const TABS_MIN = 3;
const EVERY_MS = 20;
const SERVER_LASTS_MS = 6_000;
/** After the server or the network was away, events may be late for so long. */
const AFTERMATH_MS = 5_000;
/** Tabs die more often than networks and servers. */
const CHANCES = ['close', 'close', 'crash', 'crash', 'first', 'first', 'offline', 'edge', 'brain'];
const PATIENCE_MS = 60_000;

let halley;
let browser;
let pages;
before(async () => {
  [halley, browser] = await startWithBrowser();
  pages = await pagesFor(halley);
});
endAfter(() => [browser, pages, halley]);

/** The same numbers for the same seed (mulberry32). */
function randomOf(seed) {
  let state = seed;
  return (below) => {
    state = (state + 0x6d2b79f5) | 0;
    let bits = Math.imul(state ^ (state >>> 15), 1 | state);
    bits = (bits + Math.imul(bits ^ (bits >>> 7), 61 | bits)) ^ bits;
    return ((bits ^ (bits >>> 14)) >>> 0) % below;
  };
}

/** Publishes 0, 1, 2 … until it is ended, each until it is accepted. */
function publisher(user) {
  let [n, isOver] = [0, false];
  const run = (async () => {
    for (; !isOver; n += 1) {
      await until('published', () => publish(halley, user, n, { id: `${user}-${n}` }),
        PATIENCE_MS);
      await sleep(EVERY_MS);
    }
  })();
  return async () => {
    isOver = true;
    await run;
    return n - 1;
  };
}

test('random kills of tabs, network and server: nothing lost or twice', async (context) => {
  context.diagnostic(`seed ${SEED}`);
  const random = randomOf(SEED);
  const browserContext = await browser.newContext();
  const tabs = [];
  const open = async () => tabs.push(await tabOf(browserContext, pages, 'chaos', {}, false));
  const take = () => tabs.splice(random(tabs.length), 1)[0];
  const steps = {
    close: () => take().close(),
    crash: async () => {
      const tab = take();
      const crashes = tab.waitForEvent('crash');
      tab.goto('chrome://crash').catch(() => {});
      await crashes;
      await tab.close();
    },
    first: () => tabs.shift().close(),
    offline: async () => {
      const since = Date.now();
      await browserContext.setOffline(true);
      await sleep(random(1_500));
      await browserContext.setOffline(false);
      away.push([since, Date.now() + AFTERMATH_MS]);
    },
    // An edge that doesn't last is started ever later, by the server's own rule.
    edge: () => afterRest(() => kill(halley.edgePid(), 'SIGKILL')),
    brain: () => afterRest(async () => {
      kill(halley.brainPid(), 'SIGKILL');
      await halley.exited();
      halley.spawn();
    }),
  };
  const afterRest = async (act) => {
    if (Date.now() - killedAt < SERVER_LASTS_MS) return;
    killedAt = Date.now();
    await act();
    away.push([killedAt, Date.now() + AFTERMATH_MS]);
  };
  const away = [];
  let killedAt = 0;
  while (tabs.length < TABS_MIN) await open();
  const end = publisher('chaos');
  const done = [];
  for (let step = 0; step < STEPS; step += 1) {
    const name = CHANCES[random(CHANCES.length)];
    done.push(name);
    if (name === 'edge' || name === 'brain') {
      await halley.ready();
      await until('an edge', () => halley.edgePid());
    }
    await steps[name]();
    while (tabs.length < TABS_MIN) await open();
    await sleep(random(1_200));
  }
  const last = await end();
  const calm = [];
  try {
    for (const tab of tabs) {
      await until('the last event is shown', () =>
        tab.evaluate((n) => window.one.items.at(-1) === n, last), PATIENCE_MS);
      const items = await tab.evaluate(() => window.one.items);
      assert.deepEqual(items, Array.from({ length: items.length }, (_, at) => items[0] + at));
      const { delays, times } = await tab.evaluate(() =>
        ({ delays: window.one.delays, times: window.one.times }));
      calm.push(...delays.filter((_, n) => n > 0
        && !away.some(([from, to]) => times[n] >= from && times[n] <= to)));
    }
    context.diagnostic(`${STEPS} steps, ${last + 1} events, ${done.join(' ')}`);
    context.diagnostic(`while tabs alone died, the longest wait: ${Math.max(0, ...calm)} ms `
      + `of ${calm.length}`);
    await until('one session', async () => await sessionsOf(halley, 'chaos') === 1);
  } catch (error) {
    error.message += `\n  seed ${SEED}, ${done}`;
    throw error;
  }
  await browserContext.close();
});

test('who has the connection is killed: the others go on, soon', async (context) => {
  const browserContext = await browser.newContext();
  const tabs = [];
  for (let n = 0; n < 4; n += 1) tabs.push(await tabOf(browserContext, pages, 'heir'));
  const end = publisher('heir');
  while (tabs.length > 1) {
    await sleep(1_000);
    const leader = tabs.shift();
    const crashes = leader.waitForEvent('crash');
    leader.goto('chrome://crash').catch(() => {});
    await crashes;
  }
  await sleep(1_000);
  const last = await end();
  await until('the last event is shown', () =>
    tabs[0].evaluate((n) => window.one.items.at(-1) === n, last), PATIENCE_MS);
  const items = await tabs[0].evaluate(() => window.one.items);
  assert.deepEqual(items, Array.from({ length: items.length }, (_, at) => items[0] + at));
  const delays = await tabs[0].evaluate(() => window.one.delays);
  context.diagnostic(`the longest of ${delays.length}: ${Math.max(...delays)} ms`);
  // Where other tests run beside it, a second says something of them.
  const most = process.env.CHAOS_STEPS ? 1_000 : PATIENCE_MS;
  assert.ok(Math.max(...delays) < most, `${Math.max(...delays)} ms`);
  await browserContext.close();
});
