// Several tabs of a browser with one connection between them: who dies, sleeps or comes later.
//
// A tab of Firefox can't be made to crash or to hang alone, nor be set offline.

import assert from 'node:assert/strict';
import { before } from 'node:test';
import { api, publish, sessionsOf } from '../../../../test/lib/client.mjs';
import { kill, test } from '../../../../test/lib/halley.mjs';
import { serious } from '../../../../test/lib/pages.mjs';
import { sleep, until, within } from '../../../../test/lib/wait.mjs';
import { endAfter, startWithBrowser } from '../../../../test/lib/world.mjs';
import { subscriptions } from './tabs-subscriptions.mjs';
import { pagesFor, tabOf } from './tabs.mjs';
import { proxy } from './world.mjs';

/** Where a client looks for a way. */
const PATIENCE_MS = 90_000;
const BUFFERS_MS_MAX = 240_000;

let halley;
let browser;
let pages;

const items = (tab) => tab.evaluate(() => window.one.items);
const shows = (tab, expected, ms) => until(`${JSON.stringify(expected)} is shown`, async () =>
  JSON.stringify(await items(tab)) === JSON.stringify(expected), ms).catch(async (error) => {
  assert.deepEqual(await items(tab), expected);
  throw error;
});

/** So many tabs, and what to end them with. */
async function tabsOf(count, user, options) {
  const context = await browser.newContext();
  const tabs = [];
  for (let n = 0; n < count; n += 1) tabs.push(await tabOf(context, pages, user, options));
  return { context, tabs };
}

/**
 * The page itself comes from elsewhere. Until the client knows, each way that is held costs it ten
 * seconds.
 */
async function behindBuffers() {
  const way = await proxy(halley.publicPort, (path) =>
    (path.startsWith('/v1/ws') ? 'refuse' : 'buffer'));
  const held = await pagesFor({ publicUrl: way.url });
  const context = await browser.newContext();
  try {
    const options = { transports: ['websocket', 'sse', 'poll'] };
    const open = () => tabOf(context, held, 'buffered', options, false);
    const leader = await open();
    await until('it polls', () => leader.evaluate(() =>
      window.one.halley.state === 'open' && window.one.halley.transport === 'poll'), PATIENCE_MS);
    const other = await open();
    await until('the other is there', () =>
      other.evaluate(() => window.one.halley.state === 'open'));
    const say = async (...all) => {
      for (const n of all) await publish(halley, 'buffered', n);
    };
    await say(1, 2);
    for (const tab of [leader, other]) await shows(tab, [1, 2]);
    way.cut();
    await say(3);
    const { id } = await other.evaluate(() => window.one.halley.publish('buffered', 4));
    assert.match(id, /^me:/);
    for (const tab of [leader, other]) await shows(tab, [1, 2, 3, 4], PATIENCE_MS);
    await leader.close();
    await say(5);
    await shows(other, [1, 2, 3, 4, 5], PATIENCE_MS);
    assert.ok(way.paths.some((path) => path.startsWith('/v1/stream')), 'a stream was tried');
  } finally {
    await context.close();
    held.close();
    way.close();
  }
}

const allReconnect = (tabs) => Promise.all(tabs.map((tab) =>
  tab.waitForFunction(() => window.one.halley.state === 'reconnecting')));

/** The page itself comes from elsewhere; what its clients have goes through a proxy. */
async function cutOff() {
  const way = await proxy(halley.publicPort, () => {});
  const ours = await pagesFor({ publicUrl: way.url });
  const context = await browser.newContext();
  try {
    const tabs = [];
    for (let n = 0; n < 3; n += 1) tabs.push(await tabOf(context, ours, 'cut'));
    await publish(halley, 'cut', 0);
    for (const tab of tabs) await shows(tab, [0]);
    way.away();
    await allReconnect(tabs);
    for (let n = 1; n < 5; n += 1) await publish(halley, 'cut', n);
    for (const tab of tabs) assert.deepEqual(await items(tab), [0]);
    way.back();
    for (const tab of tabs) await shows(tab, [0, 1, 2, 3, 4], PATIENCE_MS);
    await until('one session', async () => await sessionsOf(halley, 'cut') === 1);
  } finally {
    await context.close();
    ours.close();
    way.close();
  }
}

/** `kills` a part of the server between events: what tabs show, and which `states` they told. */
async function killed(user, states, kills) {
  const { context, tabs } = await tabsOf(4, user);
  const all = Array.from({ length: 10 }, (_, n) => n);
  for (const n of all.slice(0, 5)) await publish(halley, user, n);
  for (const tab of tabs) {
    await shows(tab, all.slice(0, 5));
    await tab.evaluate(() => { window.one.states.length = 0; });
  }
  await kills();
  for (const n of all.slice(5)) {
    await until('published', () => publish(halley, user, n, { id: `${user}-${n}` }), PATIENCE_MS);
  }
  for (const tab of tabs) {
    await shows(tab, all, PATIENCE_MS);
    const told = await tab.evaluate(() => window.one.states);
    assert.deepEqual([...new Set(told)], states);
  }
  await until('one session', async () => await sessionsOf(halley, user) === 1);
  await context.close();
}

/** All of it, in the browser that `open` gives. */
export function suite(open, isFirefox = false) {
  const chromium = isFirefox ? () => {} : test;
  before(async () => {
    [halley, browser] = await startWithBrowser(open);
    pages = await pagesFor(halley);
  });
  endAfter(() => [browser, pages, halley]);

  for (const transport of ['websocket', 'sse', 'ndjson', 'poll']) {
    test(`${transport}: one tab alone from a page of another origin`, async () => {
      const user = `one-${transport}`;
      const { context, tabs: [tab] } = await tabsOf(1, user, { transports: [transport] });
      assert.equal(await tab.evaluate(() => window.one.halley.transport), transport);
      await publish(halley, user, 'Žluťoučký 🐎');
      await shows(tab, ['Žluťoučký 🐎']);
      const { id } = await tab.evaluate((name) => window.one.halley.publish(name, 2), user);
      assert.match(id, /^me:/);
      await shows(tab, ['Žluťoučký 🐎', 2]);
      await context.close();
    });
  }

  test('eight tabs have one connection, each has every event, and each may publish', async () => {
    // More than the six connections that a browser has to one host.
    const { context, tabs } = await tabsOf(8, 'eight', { transports: ['sse'] });
    await until('one session', async () => await sessionsOf(halley, 'eight') === 1);
    for (let n = 0; n < 5; n += 1) await publish(halley, 'eight', n);
    await Promise.all(tabs.map((tab) => tab.evaluate((n) =>
      window.one.halley.publish('eight', { n }).then(() => {}), 1)));
    for (const tab of tabs) {
      await until('all is there', async () => (await items(tab)).length === 13);
      assert.deepEqual((await items(tab)).slice(0, 5), [0, 1, 2, 3, 4]);
    }
    assert.equal(await sessionsOf(halley, 'eight'), 1);
    await context.close();
  });

  test('a tab that leads is closed, the next goes on: nothing lost, nothing twice', async () => {
    const { context, tabs } = await tabsOf(4, 'heirs');
    const expected = [];
    let n = 0;
    const say = async (count) => {
      for (let end = n + count; n < end; n += 1) {
        await publish(halley, 'heirs', n);
        expected.push(n);
      }
    };
    await say(3);
    while (tabs.length > 1) {
      const closing = tabs.shift().close();
      await say(5);
      await closing;
      for (const tab of tabs) await shows(tab, expected);
      await until('one session', async () => await sessionsOf(halley, 'heirs') === 1);
    }
    await context.close();
  });

  chromium('a tab that leads crashes while events come: the others have them all', async () => {
    const { context, tabs } = await tabsOf(3, 'crash');
    await publish(halley, 'crash', 'before');
    for (const tab of tabs) await shows(tab, ['before']);
    const [leader, ...others] = tabs;
    const crashes = leader.waitForEvent('crash');
    leader.goto('chrome://crash').catch(() => {});
    const expected = ['before'];
    for (let n = 0; n < 40; n += 1) {
      await publish(halley, 'crash', n);
      expected.push(n);
      await sleep(10);
    }
    await crashes;
    for (const tab of others) await shows(tab, expected);
    await context.close();
  });

  chromium('a tab that leads hangs: who looks at another tab takes the connection', async () => {
    const { context, tabs: [leader, other] } = await tabsOf(2, 'hangs', { silenceMs: 3_000 });
    await publish(halley, 'hangs', 1);
    for (const tab of [leader, other]) await shows(tab, [1]);
    // A request that a page waits for does what an endless loop does, and has an end.
    const { asked, answer } = pages.hang();
    const hanging = leader.evaluate(() => {
      const request = new XMLHttpRequest();
      request.open('GET', '/hang', false);
      request.send();
    });
    await asked;
    await publish(halley, 'hangs', 2);
    await shows(other, [1, 2]);
    answer();
    await hanging;
    await publish(halley, 'hangs', 3);
    await shows(other, [1, 2, 3]);
    await shows(leader, [1, 2, 3]);
    await until('one session', async () => await sessionsOf(halley, 'hangs') === 1);
    await context.close();
  });

  chromium('offline and back, by the browser: each tab says so, has everything', async () => {
    const { context, tabs } = await tabsOf(3, 'offline');
    await context.setOffline(true);
    await allReconnect(tabs);
    for (let n = 0; n < 5; n += 1) await publish(halley, 'offline', n);
    await context.setOffline(false);
    for (const tab of tabs) await shows(tab, [0, 1, 2, 3, 4]);
    await context.close();
  });

  test('a network that is cut, and comes back: each tab says so, and has everything', cutOff);

  test('a killed edge: each tab says so, and has everything', () =>
    killed('edge', ['reconnecting', 'open'], () => kill(halley.edgePid(), 'SIGKILL')));

  test('a killed brain: no tab is the wiser, and each has everything', () =>
    killed('brain', [], async () => {
      await halley.killBrain();
      halley.spawn();
    }));

  test('a proxy that buffers: tabs share polls, also when it cuts and their leader goes',
    () => within('it', behindBuffers(), BUFFERS_MS_MAX));

  subscriptions(() => halley, tabsOf, (context, user, options) =>
    tabOf(context, pages, user, options));

  test('tabs of two users share nothing; nor does one that is told not to', async () => {
    const context = await browser.newContext();
    const [ann, bob] = [await tabOf(context, pages, 'ann'), await tabOf(context, pages, 'bob')];
    const alone = await tabOf(context, pages, 'bob', { share: false });
    await publish(halley, 'ann', 'a');
    await publish(halley, 'bob', 'b');
    await shows(ann, ['a']);
    await shows(bob, ['b']);
    await shows(alone, ['b']);
    assert.equal(await sessionsOf(halley, 'bob'), 2);
    await context.close();
  });

  test('a tab with a cursor of its own gets what it missed from the server, then what all get',
    async () => {
      const { context, tabs: [tab] } = await tabsOf(1, 'later');
      const cursor = await tab.evaluate(() => window.one.halley.cursor);
      for (const n of [1, 2, 3]) await publish(halley, 'later', n);
      const other = await tabOf(context, pages, 'later', { cursor });
      await shows(other, [1, 2, 3]);
      await publish(halley, 'later', 4);
      for (const each of [tab, other]) await shows(each, [1, 2, 3, 4]);
      await until('one session', async () => await sessionsOf(halley, 'later') === 1);
      await context.close();
    });

  test('examples/dom: what one says the other reads', async () => {
    const address = `${pages.url}/example?halley=${halley.publicUrl}`;
    const context = await browser.newContext();
    const [ann, bob] = [await context.newPage(), await context.newPage()];
    await Promise.all([ann.goto(`${address}&user=ann`), bob.goto(`${address}&user=bob`)]);
    for (const tab of [ann, bob]) {
      await tab.getByRole('status').filter({ hasText: 'open' }).waitFor();
    }
    await until('both follow', async () =>
      (await api(halley, 'GET', '/v1/subjects/room%2F7/followers')).json.followers.length === 2);
    await ann.getByLabel('Say').fill('hello <b>');
    await ann.getByRole('button', { name: 'Send' }).click();
    for (const tab of [ann, bob]) {
      await tab.getByText('ann: hello <b>', { exact: true }).waitFor();
    }
    assert.deepEqual(await serious(ann), []);
    assert.equal(await ann.getByLabel('Say').inputValue(), '');
    await context.close();
  });
}
