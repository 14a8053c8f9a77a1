// Tabs that are closed and crash, a network that goes, an edge that is killed, in a random order:
// no tab that lives has lost an event, or shows one twice.
//
// `CHAOS_STEPS=100 CHAOS_SEED=… node --test chaos.test.mjs` does more of it, or the same again.

import assert from 'node:assert/strict';
import { after, before } from 'node:test';
import { openBrowser } from '../../../test/system/lib/browser.mjs';
import { publish, sessionsOf } from '../../../test/system/lib/client.mjs';
import { kill, start, test } from '../../../test/system/lib/halley.mjs';
import { sleep, until } from '../../../test/system/lib/wait.mjs';
import { pagesFor, tabOf } from './lib/tabs.mjs';

const STEPS = Number(process.env.CHAOS_STEPS ?? 12);
const SEED = Number(process.env.CHAOS_SEED ?? Date.now() % 1_000_000);
const TABS_MIN = 3;
const EVERY_MS = 20;
const EDGE_LASTS_MS = 6_000;
const PATIENCE_MS = 60_000;

let halley;
let browser;
let pages;
before(async () => {
  [halley, browser] = await Promise.all([
    start({ settings: { HALLEY_CORS_ORIGINS: 'localhost' } }), openBrowser(),
  ]);
  pages = await pagesFor(halley);
});
after(async () => {
  await browser?.close();
  pages?.close();
  await halley?.stop();
});

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

test('random kills of tabs, network and edge: nothing lost, nothing twice', async (context) => {
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
      await browserContext.setOffline(true);
      await sleep(random(1_500));
      await browserContext.setOffline(false);
    },
    // One that doesn't last is started ever later, by the server's own rule.
    edge: () => {
      if (Date.now() - killedAt < EDGE_LASTS_MS) return;
      killedAt = Date.now();
      kill(halley.edgePid(), 'SIGKILL');
    },
  };
  let killedAt = 0;
  while (tabs.length < TABS_MIN) await open();
  const end = publisher('chaos');
  const done = [];
  for (let step = 0; step < STEPS; step += 1) {
    const name = Object.keys(steps)[random(5)];
    done.push(name);
    if (name === 'edge') await until('an edge', () => halley.edgePid());
    await steps[name]();
    while (tabs.length < TABS_MIN) await open();
    await sleep(random(1_200));
  }
  const last = await end();
  try {
    for (const tab of tabs) {
      await until('the last event is shown', () =>
        tab.evaluate((n) => window.one.items.at(-1) === n, last), PATIENCE_MS);
      const items = await tab.evaluate(() => window.one.items);
      assert.deepEqual(items, Array.from({ length: items.length }, (_, at) => items[0] + at));
    }
    assert.equal(await sessionsOf(halley, 'chaos'), 1);
  } catch (error) {
    error.message += `\n  seed ${SEED}, ${done}`;
    throw error;
  }
  await browserContext.close();
});

test('who has the connection is killed: the others wait less than a second', async (context) => {
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
    tabs[0].evaluate((n) => window.one.items.at(-1) === n, last));
  const delays = await tabs[0].evaluate(() => window.one.delays);
  context.diagnostic(`the longest of ${delays.length}: ${Math.max(...delays)} ms`);
  assert.ok(Math.max(...delays) < 1_000, `${Math.max(...delays)} ms`);
  await browserContext.close();
});
