// Pages that the browser freezes, or keeps for "back": they come back to everything.

import assert from 'node:assert/strict';
import { after, before } from 'node:test';
import { openBrowser } from '../../../test/lib/browser.mjs';
import { publish, sessionsOf } from '../../../test/lib/client.mjs';
import { freeze, kill, start, test } from '../../../test/lib/halley.mjs';
import { sleep, until } from '../../../test/lib/wait.mjs';
import { pagesFor, processOf, tabOf } from './lib/tabs.mjs';
import { proxy } from './lib/world.mjs';

let halley;
let browser;
let pages;
before(async () => {
  // Playwright switches off what is kept for "back".
  [halley, browser] = await Promise.all([
    start({ settings: { HALLEY_CORS_ORIGINS: 'localhost' } }),
    openBrowser({ ignoreDefaultArgs: ['--disable-back-forward-cache'] }),
  ]);
  pages = await pagesFor(halley);
});
after(async () => {
  await browser?.close();
  pages?.close();
  await halley?.stop();
});

const items = (tab) => tab.evaluate(() => window.one.items);
const shows = (tab, count) =>
  until(`${count} events`, async () => (await items(tab)).length >= count);

/** Longer than a client takes a stream's silence for. */
const FROZEN_MS = 6_000;

/**
 * Stops the process of a tab. A browser without a window freezes no page by itself: all count as
 * looked at. Gives what wakes it, with the event that a browser has then.
 */
async function freezeTab(tab) {
  const pid = await processOf(browser, tab);
  await tab.evaluate(() => {
    window.ticks = [];
    setInterval(() => window.ticks.push(Date.now()), 50);
  });
  await tab.waitForFunction(() => window.ticks.length > 0);
  await freeze(pid);
  const since = Date.now();
  return async () => {
    const end = Date.now();
    kill(pid, 'SIGCONT');
    await tab.evaluate(() => document.dispatchEvent(new Event('resume')));
    await tab.waitForFunction((time) => window.ticks.at(-1) >= time, end);
    const between = await tab.evaluate(([from, to]) =>
      window.ticks.filter((time) => time > from && time < to), [since, end]);
    assert.deepEqual(between, [], `it ran while it was frozen, from ${since} to ${end}`);
  };
}

for (const share of [true, false]) {
  test(`a frozen page has everything when it wakes, once (share: ${share})`, async () => {
    const [context, user] = [await browser.newContext(), `frozen-${share}`];
    const tab = await tabOf(context, pages, user, { share, silenceMs: 4_000 });
    await publish(halley, user, 0);
    await shows(tab, 1);
    const wake = await freezeTab(tab);
    for (let n = 1; n < 20; n += 1) await publish(halley, user, n);
    await sleep(FROZEN_MS);
    await wake();
    await shows(tab, 20);
    assert.deepEqual(await items(tab), Array.from({ length: 20 }, (_, n) => n));
    await until('one session', async () => await sessionsOf(halley, user) === 1);
    await context.close();
  });
}

test('a tab that leads is frozen: another leads, and both have everything', async () => {
  const context = await browser.newContext();
  const options = { silenceMs: 3_000 };
  const leader = await tabOf(context, pages, 'cold', options);
  const other = await tabOf(context, pages, 'cold', options);
  await publish(halley, 'cold', 0);
  for (const tab of [leader, other]) await shows(tab, 1);
  const wake = await freezeTab(leader);
  for (let n = 1; n < 10; n += 1) await publish(halley, 'cold', n);
  await shows(other, 10);
  await wake();
  for (const tab of [leader, other]) {
    await shows(tab, 10);
    assert.deepEqual(await items(tab), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
  }
  await until('one session', async () => await sessionsOf(halley, 'cold') === 1);
  await context.close();
});

test('a page kept for "back" gives its connection up, and comes back to what it missed',
  async () => {
    const context = await browser.newContext();
    const tab = await tabOf(context, pages, 'back');
    await publish(halley, 'back', 0);
    await shows(tab, 1);
    await tab.evaluate(() => { window.isKept = true; });
    await tab.goto(`${pages.url}/elsewhere`);
    await until('no session', async () => await sessionsOf(halley, 'back') === 0);
    for (let n = 1; n < 5; n += 1) await publish(halley, 'back', n);
    await tab.goBack({ waitUntil: 'commit' });
    assert.equal(await tab.evaluate(() => window.isKept), true, 'the same page, not a new one');
    await shows(tab, 5);
    assert.deepEqual(await items(tab), [0, 1, 2, 3, 4]);
    await until('a session', async () => await sessionsOf(halley, 'back') === 1);
    await context.close();
  });

test('a page that was hidden and is looked at again connects at once', async () => {
  const way = await proxy(halley.publicPort, () => {});
  const ours = await pagesFor({ publicUrl: way.url });
  const context = await browser.newContext();
  try {
    const tab = await tabOf(context, ours, 'hidden', { share: false });
    await tab.evaluate(() => { Math.random = () => 0.999; });
    way.away();
    // 1.5, 3, 6, then 12 s until the next try.
    await until('the next try is far away', () => tab.evaluate(() =>
      window.one.states.filter((state) => state === 'reconnecting').length >= 4), 60_000);
    const since = Date.now();
    way.back();
    const look = (hidden) => tab.evaluate((isHidden) => {
      Object.defineProperty(document, 'hidden', { get: () => isHidden, configurable: true });
      document.dispatchEvent(new Event('visibilitychange'));
    }, hidden);
    await look(true);
    await sleep(1_500);
    assert.equal(await tab.evaluate(() => window.one.halley.state), 'reconnecting');
    await look(false);
    await tab.waitForFunction(() => window.one.halley.state === 'open');
    assert.ok(Date.now() - since < 10_000, `not by its next try: ${Date.now() - since} ms`);
  } finally {
    await context.close();
    ours.close();
    way.close();
  }
});
