// docs/internals/celebrities.md: a subject with many followers is a group that the workers hold,
// which no client notices: followers who are there get each event once and in order, whatever comes
// and goes. "Many" is three here, and once a thousand, so that filling and slices are seen.

import assert from 'node:assert/strict';
import { after, before } from 'node:test';
import { follow, publish, unfollow } from '../lib/client.mjs';
import { kill, start, test } from '../lib/halley.mjs';
import { metric } from '../lib/metrics.mjs';
import { closeStreams, ndjson, poll, sse, ws } from '../lib/streams.mjs';
import { until } from '../lib/wait.mjs';

let halley;
before(async () => {
  halley = await start({ settings: {
    HALLEY_LIMITS_GROUP_FOLLOWERS_MIN: '3', HALLEY_LIMITS_GROUP_FOLLOWERS_LOW: '2',
    HALLEY_STREAM_RETRY: '100ms', HALLEY_STREAM_HEARTBEAT: '2s',
  } });
});
after(async () => {
  closeStreams();
  await halley?.stop();
});

/** So many events have gone to groups, once the edge has said so. */
const groupEvents = () => metric(halley, 'halley_group_events_total');

/** The subject's next event goes to its group: everybody there is a member. */
async function isGroup(subject) {
  await until(`${subject} to be a group`, async () => {
    const before = await groupEvents();
    await publish(halley, subject, 'warm');
    return await groupEvents() > before;
  });
}

const clients = async (users, open = sse) => Promise.all(users.map((user) => open(halley, user)));

/** What comes until `last`, without what was published to warm up. */
async function upTo(stream, last) {
  const seen = [];
  for (;;) {
    const { data } = await stream.event();
    if (data !== 'warm') seen.push(data);
    if (data === last) return seen;
  }
}

test('members get each event once, in order, on every transport; the answer counts them',
  async () => {
  const users = ['a1', 'a2', 'a3', 'a4'];
  await follow(halley, ...users.map((user) => [user, 'star']));
  const streams = [await sse(halley, 'a1'), await ndjson(halley, 'a2'), await ws(halley, 'a3'),
    await sse(halley, 'a1')];
  await isGroup('star');
  const waiting = poll(halley, 'a4', { timeout: 15 });
  let answer;
  waiting.then((it) => { answer = it; });
  await until('the poll to be answered', async () =>
    answer ?? (await publish(halley, 'star', 'warm'), undefined));
  assert.equal(answer.events[0].data, 'warm');
  await until('the poll to be no session any more', async () =>
    (await publish(halley, 'star', 'warm')).sessions === 4 || undefined);
  for (let n = 1; n <= 20; n += 1) {
    const { sessions } = await publish(halley, 'star', n);
    assert.equal(sessions, 4);
    if (n % 5 === 0) await publish(halley, 'a1', `own ${n}`);
  }
  const expected = Array.from({ length: 20 }, (_, n) => n + 1);
  for (const stream of streams) {
    const seen = await upTo(stream, 20);
    assert.deepEqual(seen.filter((data) => typeof data === 'number'), expected);
  }
  closeStreams();
});

test('follow, unfollow, login and logout take effect with their answers', async () => {
  await follow(halley, ['b1', 'moon'], ['b2', 'moon'], ['b3', 'moon']);
  const [b1, b2, b3, own] = await clients(['b1', 'b2', 'b3', 'moon']);
  await isGroup('moon');
  for (let n = 0; n < 30; n += 1) {
    await unfollow(halley, ['b1', 'moon']);
    assert.equal((await publish(halley, 'moon', `without ${n}`)).sessions, 3);
    await follow(halley, ['b1', 'moon']);
    const visitor = await sse(halley, n % 2 ? 'b2' : 'b3');
    assert.equal((await publish(halley, 'moon', `with ${n}`)).sessions, 5);
    assert.equal((await visitor.event()).data, `with ${n}`);
    visitor.close();
    await until('the visitor to be gone', async () =>
      (await publish(halley, 'moon', 'warm')).sessions === 4);
  }
  await publish(halley, 'moon', 'end');
  const each = (what) => Array.from({ length: 30 }, (_, n) => `${what} ${n}`);
  assert.deepEqual(await upTo(b1, 'end'), [...each('with'), 'end']);
  const all = each('without').flatMap((event, n) => [event, `with ${n}`]);
  for (const stream of [b2, b3, own]) assert.deepEqual(await upTo(stream, 'end'), [...all, 'end']);
  closeStreams();
});

test('a group begins, ends and begins again between two events', async () => {
  await follow(halley, ['c1', 'sun'], ['c2', 'sun'], ['c3', 'sun']);
  const streams = await clients(['c1', 'c2']);
  await isGroup('sun');
  const ended = await metric(halley, 'halley_groups');
  await unfollow(halley, ['c2', 'sun'], ['c3', 'sun']);
  await until('the group to end', async () => await metric(halley, 'halley_groups') < ended);
  await publish(halley, 'sun', 1);
  await follow(halley, ['c2', 'sun'], ['c3', 'sun']);
  for (let n = 2; n < 40; n += 1) assert.equal((await publish(halley, 'sun', n)).sessions, 2);
  const from = (first) => Array.from({ length: 40 - first }, (_, n) => first + n);
  assert.deepEqual(await upTo(streams[0], 39), from(1));
  assert.deepEqual(await upTo(streams[1], 39), from(2));
  closeStreams();
});

test('a crowd, a cursor, and both kills', async () => {
  const users = Array.from({ length: 1_200 }, (_, n) => `d${n}`);
  await follow(halley, ...users.map((user) => [user, 'comet']));
  const few = await clients(users.slice(0, 300), ndjson);
  await isGroup('comet');
  assert.equal((await publish(halley, 'comet', 1)).sessions, 300);
  for (const stream of few) assert.deepEqual(await upTo(stream, 1), [1]);
  const away = few[0];
  away.close();
  await publish(halley, 'comet', 2);
  await halley.killBrain();
  await halley.start();
  await publish(halley, 'comet', 3);
  const back = await ndjson(halley, 'd0', {}, away.cursor);
  await isGroup('comet');
  await publish(halley, 'comet', 4);
  assert.deepEqual(await upTo(back, 4), [2, 3, 4]);
  for (const stream of few.slice(1)) assert.deepEqual(await upTo(stream, 4), [2, 3, 4]);
  kill(halley.edgePid(), 'SIGKILL');
  await until('another edge', () => halley.edgePids().length === 1);
  await halley.ready();
  await publish(halley, 'comet', 5);
  const again = await Promise.all(few.map((stream, n) =>
    ndjson(halley, users[n], {}, n === 0 ? back.cursor : stream.cursor)));
  await isGroup('comet');
  // Who is still being replayed is no session yet, and gets it all the same.
  await publish(halley, 'comet', 6);
  for (const stream of again) assert.deepEqual(await upTo(stream, 6), [5, 6]);
  closeStreams();
});
