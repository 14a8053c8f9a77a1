// Presence, as a client receives it: requested from the beginning or later, sent again after each
// loss, passed to each tab that watches.

import assert from 'node:assert/strict';
import { before } from 'node:test';
import { openBrowser } from '../../../test/lib/browser.mjs';
import { api, publish, sessionsOf } from '../../../test/lib/client.mjs';
import { kill, start, test } from '../../../test/lib/halley.mjs';
import { metric } from '../../../test/lib/metrics.mjs';
import { Queue, until } from '../../../test/lib/wait.mjs';
import { endAfter } from '../../../test/lib/world.mjs';
import { pagesFor, tabOf } from './lib/tabs.mjs';
import { client, proxy, reaches } from './lib/world.mjs';

const LEAVE_MS = 2_000;
const settings = { HALLEY_CORS_ORIGINS: 'localhost', HALLEY_PRESENCE_SUBJECTS: 'room/*, friend*',
  HALLEY_PRESENCE_LEAVE_AFTER: `${LEAVE_MS}ms` };

let halley;
let browser;
let pages;
before(async () => {
  [halley, browser] = await Promise.all([start({ settings }), openBrowser()]);
  pages = await pagesFor(halley);
});
endAfter(() => [browser, pages, halley]);

const state = (subject, ...users) => ({ subject, online: users.length, users });
const join = (subject, user) => ({ subject, user, state: 'join' });
const leave = (subject, user) => ({ subject, user, state: 'leave' });

/** A client that is open, with a queue of what it is told of presence. */
async function opened(options, url = halley.publicUrl) {
  const one = client(url, options);
  one.presence = new Queue();
  one.halley.onPresence((what) => one.presence.push(what));
  await reaches(one, 'open');
  return one;
}

/** Waits until these are there, by a state that is told anew; gives all that was told. */
async function toldAnew(one, subject, ...users) {
  const told = [];
  let there;
  while (there === undefined || users.join() !== [...there].sort().join()) {
    const what = await one.presence.next();
    assert.equal(what.subject, subject);
    told.push(what);
    if (what.users) there = new Set(what.users);
    else if (what.state === 'join') there?.add(what.user);
    else there?.delete(what.user);
  }
  return told;
}

for (const transport of ['websocket', 'sse', 'ndjson']) {
  const only = { transports: [transport] };

  test(`${transport}: who is there, who comes and goes; again after a cut`, async () => {
    const room = `room/${transport}`;
    const way = await proxy(halley.publicPort, () => undefined);
    const ann = await opened({ user: 'ann', subjects: [room] });
    const bob = await opened({ user: 'bob', presence: [room], ...only }, way.url);
    assert.deepEqual(await bob.presence.next(), state(room, 'ann'));
    const eve = await opened({ user: 'eve', subjects: [room] });
    assert.deepEqual(await bob.presence.next(), join(room, 'eve'));
    way.cut();
    assert.deepEqual(await bob.presence.next(), state(room, 'ann', 'eve'));
    eve.halley.close();
    assert.deepEqual(await bob.presence.next(), leave(room, 'eve'));
    await bob.items.none('it is no event');
    for (const one of [ann, bob]) one.halley.close();
    way.close();
  });

  test(`${transport}: asked for later, and no more`, async () => {
    const [room, user] = [`room/later ${transport}`, `later-${transport}`];
    const way = await proxy(halley.publicPort, () => undefined);
    const ann = await opened({ user: 'ann', subjects: [room] });
    const bob = await opened({ user, ...only }, way.url);
    await bob.halley.watch(room);
    assert.deepEqual(await bob.presence.next(), state(room, 'ann'));
    way.cut();
    assert.deepEqual(await bob.presence.next(), state(room, 'ann'), 'it is said again');
    await bob.halley.unwatch(room);
    ann.halley.close();
    await publish(halley, user, 1);
    assert.equal((await bob.items.next()).data, 1);
    await bob.presence.none('nobody asks any more', 3_000);
    bob.halley.close();
    way.close();
  });
}

test('websocket: what may not be told is refused, and ends nothing; after a kill all is told again',
  async () => {
    const bob = await opened({ user: 'bob' });
    await assert.rejects(bob.halley.watch('secret'), { code: 'presence_off' });
    await bob.halley.follow('friend');
    await bob.halley.watch('*');
    assert.deepEqual(await bob.presence.next(), state('*'));
    const friend = await opened({ user: 'friend' });
    assert.deepEqual(await bob.presence.next(), join('*', 'friend'));
    const killedAt = Date.now();
    kill(halley.edgePid(), 'SIGKILL');
    await reaches(friend, 'open');
    const wasInTime = Date.now() - killedAt < LEAVE_MS;
    const told = await toldAnew(bob, '*', 'friend');
    // Who is back late has left, and come again.
    if (wasInTime) assert.deepEqual(told, [state('*', 'friend')]);
    assert.equal(bob.halley.state, 'open');
    for (const one of [bob, friend]) one.halley.close();
  });

for (const transport of ['sse', 'ndjson']) {
  test(`${transport}: what may not be told is refused, and ends nothing`, async () => {
    const only = { transports: [transport] };
    const room = `room/may ${transport}`;
    const ann = await opened({ user: 'ann', subjects: [room] });
    // Without a user it is a visitor, which asks as well.
    for (const one of [await opened({ user: 'bob', ...only }),
      await opened({ subjects: ['hall'], ...only })]) {
      await assert.rejects(one.halley.watch('secret'), { code: 'presence_off' });
      await one.halley.watch(room);
      assert.deepEqual(await one.presence.next(), state(room, 'ann'));
      await assert.rejects(one.halley.watch('secret'), { code: 'presence_off' });
      assert.equal(one.halley.state, 'open');
      one.halley.close();
    }
    ann.halley.close();
  });
}

test('tabs: each that asks is told who is there, and the last that goes asks no more', async () => {
  const room = 'room/tabs';
  const told = (tab) => tab.evaluate(() => window.one.told);
  const has = (tab, ...all) => until(`${JSON.stringify(all)}`, async () =>
    JSON.stringify(await told(tab)) === JSON.stringify(all));
  const watch = (tab) => tab.evaluate((subject) => {
    window.one.told = [];
    window.one.halley.onPresence((what) => window.one.told.push(what));
    return window.one.halley.watch(subject);
  }, room);
  const ann = await opened({ user: 'ann', subjects: [room] });
  const context = await browser.newContext();
  const leader = await tabOf(context, pages, 'tabs');
  const other = await tabOf(context, pages, 'tabs');
  await watch(leader);
  await has(leader, state(room, 'ann'));
  await watch(other);
  await has(other, state(room, 'ann'));
  assert.equal(await sessionsOf(halley, 'tabs'), 1);
  await leader.close();
  await until('the other leads, and is told anew', async () => (await told(other)).length > 1);
  const eve = await opened({ user: 'eve', subjects: [room] });
  await until('eve is there', async () =>
    (await told(other)).some((what) => what.user === 'eve' && what.state === 'join'));
  for (const one of [ann, eve]) one.halley.close();
  await context.close();
});

test('what a user says of itself is seen, whichever tab says it and whichever leads', async () => {
  const room = 'room/said';
  const states = async () => (await api(halley, 'GET',
    `/v1/subjects/${encodeURIComponent(room)}/presence`)).json?.states;
  const says = (expected) => until(`${JSON.stringify(expected)} is said`, async () =>
    JSON.stringify(await states().catch(() => 'no edge')) === JSON.stringify(expected));
  const ann = await opened({ user: 'ann', presence: [room] });
  const context = await browser.newContext();
  // Nothing else carries it, and a killed edge would have it try the others for a minute.
  const options = { subjects: [room], transports: ['websocket'] };
  const leader = await tabOf(context, pages, 'said', options);
  const other = await tabOf(context, pages, 'said', options);
  const say = (tab, data) => tab.evaluate((what) => window.one.halley.say(what), data);
  await say(leader, { is: 'new' });
  await says({ said: { is: 'new' } });
  await say(other, { is: 'busy' });
  await says({ said: { is: 'busy' } });
  assert.equal(await say(other, 'x'.repeat(2_000)).catch(({ message }) => message)
    .then((message) => /1024 bytes/.test(message)), true, 'the tab that says it is told');
  // As an update, or in the state, where all begins anew just then.
  for (let told = {}; (told.data ?? told.states?.said)?.is !== 'busy';) {
    told = await ann.presence.next();
  }
  // The tab that leads has said the last: nobody says another's former state.
  await say(leader, { is: 'free' });
  await other.evaluate(() => window.one.halley.subscribe('live'));
  await until('the leader has it', async () => await metric(halley, 'halley_subscriptions') >= 3);
  await says({ said: { is: 'free' } });
  await leader.close();
  kill(halley.edgePid(), 'SIGKILL');
  await says({ said: { is: 'free' } });
  await say(other, null);
  await says(undefined);
  const stream = await opened({ user: 'eve', transports: ['sse'] });
  await assert.rejects(stream.halley.say('x'), { code: 'no_session' });
  for (const one of [ann, stream]) one.halley.close();
  await context.close();
});
