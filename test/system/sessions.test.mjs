// design.md, "Words" (session, follow) and contract.md: which users are online, and the effect of a
// change of follows on open streams.

import assert from 'node:assert/strict';
import { after, before } from 'node:test';
import { api, follow, publish, sessionsOf, unfollow } from '../lib/client.mjs';
import { assertEvent } from '../lib/expect.mjs';
import { start, test } from '../lib/halley.mjs';
import { closeStreams, ndjson, sse, ws } from '../lib/streams.mjs';
import { until } from '../lib/wait.mjs';

let halley;
before(async () => { halley = await start(); });
after(async () => {
  closeStreams();
  await halley?.stop();
});

test('many sessions of one user, of every transport: each gets every event once', async () => {
  const opened = [];
  for (let n = 0; n < 10; n += 1) {
    opened.push(await sse(halley, 'many'), await ndjson(halley, 'many'), await ws(halley, 'many'));
  }
  await until('30 sessions', async () => await sessionsOf(halley, 'many') === 30);
  assert.equal((await publish(halley, 'many', 'x')).sessions, 30);
  for (const stream of opened) assertEvent(await stream.event(), 'many', 'x');
  for (const stream of opened) await stream.quiet('a second copy', 10);
  for (const stream of opened.slice(0, 20)) stream.close();
  await until('10 sessions', async () => await sessionsOf(halley, 'many') === 10);
  assert.equal((await publish(halley, 'many', 'y')).sessions, 10);
  for (const stream of opened.slice(20)) assertEvent(await stream.event(), 'many', 'y');
  for (const stream of opened) stream.close();
  await until('no session', async () => await sessionsOf(halley, 'many') === 0);
});

test('a follow is effective at once on a live session, an unfollow as well', async () => {
  const stream = await sse(halley, 'fran');
  for (let round = 0; round < 20; round += 1) {
    await publish(halley, 'topic', `before ${round}`);
    await follow(halley, ['fran', 'topic']);
    await publish(halley, 'topic', round);
    await unfollow(halley, ['fran', 'topic']);
  }
  const events = await stream.events.take(20);
  assert.deepEqual(events.map((event) => event.data), [...Array(20).keys()]);
  await stream.quiet();
  stream.close();
});

test('every user follows itself, and unfollowing itself changes nothing', async () => {
  const stream = await sse(halley, 'self');
  await follow(halley, ['self', 'self']);
  assert.equal((await publish(halley, 'self', 1)).sessions, 1);
  await stream.event();
  await unfollow(halley, ['self', 'self']);
  assert.equal((await publish(halley, 'self', 2)).sessions, 1);
  assert.equal((await stream.event()).data, 2);
  await stream.quiet();
  stream.close();
});

test('follows belong to the user, not to the connection', async () => {
  await follow(halley, ['keeper', 'news']);
  for (let round = 0; round < 3; round += 1) {
    const stream = await sse(halley, 'keeper');
    await publish(halley, 'news', round);
    assertEvent(await stream.event(), 'news', round);
    stream.close();
    await until('no session', async () => await sessionsOf(halley, 'keeper') === 0);
  }
});

test('only followers get an event', async () => {
  await follow(halley, ['yes', 'only']);
  const [yes, no] = [await sse(halley, 'yes'), await sse(halley, 'no')];
  assert.equal((await publish(halley, 'only', 1)).sessions, 1);
  await yes.event();
  await no.quiet();
  yes.close();
  no.close();
});

test('100 followers on two workers: sessions in the answer is the number reached', async () => {
  const users = [...Array(100).keys()].map((n) => `crowd${n}`);
  await follow(halley, ...users.map((user) => [user, 'stage']));
  const streams = await Promise.all(users.map((user) => sse(halley, user)));
  assert.equal((await publish(halley, 'stage', 'go')).sessions, 100);
  for (const stream of streams) assertEvent(await stream.event(), 'stage', 'go');
  for (const stream of streams) stream.close();
});

test('concurrent follow and unfollow end exact', async () => {
  const users = [...Array(40).keys()].map((n) => `race${n}`);
  await Promise.all(users.map(async (user, n) => {
    await follow(halley, [user, 'race']);
    if (n % 2 === 0) await unfollow(halley, [user, 'race']);
  }));
  const page = await api(halley, 'GET', '/v1/subjects/race/followers?limit=100');
  const text = JSON.stringify(page.json);
  for (const [n, user] of users.entries()) {
    assert.equal(text.includes(`"${user}"`), n % 2 === 1, user);
  }
});

test('sessions that come and go while events are published lose none of theirs', async () => {
  let stop = false;
  const churn = (async () => {
    while (!stop) {
      const stream = await sse(halley, 'churn');
      stream.close();
    }
  })();
  const stream = await sse(halley, 'steady');
  for (let n = 0; n < 100; n += 1) await publish(halley, 'steady', n);
  const events = await stream.events.take(100);
  stop = true;
  await churn;
  assert.deepEqual(events.map((event) => event.data), [...Array(100).keys()]);
  stream.close();
});
