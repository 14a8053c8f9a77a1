// protocol/http.md 25: a session begins with the newest events about each of its subjects, then
// everything live, without hole or double between.

import assert from 'node:assert/strict';
import { before } from 'node:test';
import { api, follow, http, publish } from '../lib/client.mjs';
import { assertError } from '../lib/expect.mjs';
import { start, test } from '../lib/halley.mjs';
import { ask, ndjson, poll, sse, ws } from '../lib/streams.mjs';
import { bearer, makeKey, mint } from '../lib/token.mjs';
import { endAfter, startWithTokens } from '../lib/world.mjs';

const key = makeKey('EdDSA', 'a');
let halley;
let closed;
before(async () => {
  halley = await start();
  closed = await startWithTokens(key, { HALLEY_AUTH_ANONYMOUS: 'live/*' });
});
endAfter(() => [halley, closed]);

const data = (events) => events.map((event) => event.data);
const range = (from, to) => Array.from({ length: to - from + 1 }, (_, n) => from + n);
async function many(subject, values) {
  for (const value of values) await publish(halley, subject, value);
}

test('25.1 the newest of each subject, oldest first, then live, on every transport', async () => {
  for (const [name, opening] of Object.entries({ sse, ndjson, ws })) {
    const [a, b, none] = ['a', 'b', 'none'].map((subject) => `${subject}-${name}`);
    await many(a, range(1, 30));
    await many(b, ['x', 'y']);
    const query = { user: `u-${name}`, subjects: `${b},${a},${none}`, last: 5 };
    const stream = await opening(halley, query);
    assert.deepEqual(data(await stream.events.take(7, name)), [26, 27, 28, 29, 30, 'x', 'y']);
    for (const subject of [none, a]) {
      await publish(halley, subject, 'live');
      assert.deepEqual(data(await stream.events.take(1, name)), ['live']);
    }
    stream.close();
  }
  await many('a', range(1, 30));
  const polled = await poll(halley, { user: 'u', subjects: 'a', last: 5, timeout: 0 });
  assert.deepEqual(data(polled.events), range(26, 30));
  const nobody = await sse(halley, { subject: 'a', last: 1 });
  assert.equal((await nobody.event()).data, 30, 'a visitor as well');
  nobody.close();
});

test('25.2 a cursor says more: who comes back to the same address has none of it again',
  async () => {
  await many('c', range(1, 10));
  const first = await ndjson(halley, { user: 'u', subjects: 'c', last: 3 });
  const [, second] = await first.events.take(3);
  first.close();
  await publish(halley, 'c', 11);
  const query = { user: 'u', subjects: 'c', last: 3 };
  const back = await sse(halley, query, {}, second.cursor);
  assert.deepEqual(data(await back.events.take(2)), [10, 11]);
  await back.quiet('the newest again', 100);
  back.close();
  const poller = await poll(halley, { ...query, timeout: 0 });
  assert.deepEqual(data(poller.events), [9, 10, 11]);
  await publish(halley, 'c', 12);
  const next = await poll(halley, { ...query, cursor: poller.cursor, timeout: 0 });
  assert.deepEqual(data(next.events), [12]);
});

test('25.1 what a user follows isn\'t among them', async () => {
  await follow(halley, ['fay', 'f']);
  await many('f', [1, 2]);
  const stream = await sse(halley, { user: 'fay', subjects: 'g', last: 5 });
  await stream.quiet('what was about f before', 100);
  await publish(halley, 'f', 3);
  assert.equal((await stream.event()).data, 3);
  stream.close();
});

test('25.3 no hole and no double, while much is published', async () => {
  let n = 0;
  let going = true;
  await many('busy', [n]);
  const publisher = (async () => {
    while (going) {
      const lines = range(n + 1, n + 20).map((value) =>
        `${JSON.stringify({ subject: 'busy', data: value })}\n`).join('');
      n += 20;
      await api(halley, 'POST', '/v1/events', lines, { 'content-type': 'application/x-ndjson' });
    }
  })();
  for (let round = 0; round < 40; round += 1) {
    const opening = [sse, ndjson, ws][round % 3];
    const stream = await opening(halley, { user: `r${round}`, subjects: 'busy', last: 20 });
    const seen = data(await stream.events.take(200));
    assert.deepEqual(seen, range(seen[0], seen[0] + 199), `round ${round}`);
    stream.close();
  }
  going = false;
  await publisher;
});

test('25.4 a WebSocket subscribes with the newest in its answer', async () => {
  await many('w', range(1, 9));
  const stream = await ws(halley, 'wim');
  const answer = await ask(stream, { op: 'subscribe', subject: 'w', last: 4 });
  assert.deepEqual({ ...answer.ok, events: data(answer.ok.events) },
    { added: 1, already: 0, events: [6, 7, 8, 9], gaps: [] });
  assert.ok(answer.ok.events.every(({ cursor, id }) => cursor && id));
  await publish(halley, 'w', 10);
  assert.equal((await stream.event()).data, 10);
  const again = await ask(stream, { op: 'subscribe', subject: 'w', last: 1 });
  assert.deepEqual([again.ok.added, again.ok.already, data(again.ok.events)], [0, 1, [10]]);
  const empty = await ask(stream, { op: 'subscribe', subject: 'nothing', last: 4 });
  assert.deepEqual(empty.ok.events, []);
  for (const last of [0, 101, -1, '4', 1.5]) {
    const refused = await ask(stream, { op: 'subscribe', subject: 'w', last });
    assert.equal(refused.error.code, 'bad_last', `${last}`);
  }
  const other = await ask(stream, { op: 'follow', subject: 'w', last: 4 });
  assert.equal(other.error.code, 'bad_operation');
  const large = 'x'.repeat(60_000);
  for (let n = 0; n < 8; n += 1) await publish(halley, 'large', large);
  const much = await ask(stream, { op: 'subscribe', subject: 'large', last: 8 });
  assert.ok(much.ok.events.length >= 4 && much.ok.events.length < 8, 'as many as fit');
  stream.close();
});

test('25.5 what is refused', async () => {
  const url = `${halley.publicUrl}/v1/poll?user=u&timeout=0`;
  for (const query of ['last=5', 'subjects=a&last=0', 'subjects=a&last=101', 'subjects=a&last=x',
    'subjects=a&last=', 'subjects=a&last=05', 'subjects=a&last=+5']) {
    const error = assertError(await http('GET', `${url}&${query}`), 400);
    assert.equal(error.code, 'bad_last', query);
  }
  const twice = assertError(await http('GET', `${url}&subjects=a&last=5&last=6`), 400);
  assert.equal(twice.code, 'duplicate_parameter');
});

test('25.6 by right: who may subscribe may have them, and nobody else', async () => {
  await api(closed, 'POST', '/v1/events', { subject: 'live/1', data: 1 });
  await api(closed, 'POST', '/v1/events', { subject: 'room/1', data: 2 });
  const visitor = await sse(closed, { subjects: 'live/1', last: 5 });
  assert.equal((await visitor.event()).data, 1);
  visitor.close();
  const token = (rights) => mint(key, { sub: 'ann', halley: rights });
  const allowed = await poll(closed, { token: token({ subscribe: ['room/*'] }),
    subjects: 'room/1', last: 5, timeout: 0 });
  assert.deepEqual(data(allowed.events), [2]);
  const url = `${closed.publicUrl}/v1/poll?subjects=room/1&last=5&timeout=0`;
  const refused = await http('GET', url, { headers: bearer(token({ history: ['*'] })) });
  assert.equal(assertError(refused, 403).code, 'right_missing');
  const socket = await ws(closed, { token: token({ subscribe: ['room/*'] }) });
  assert.deepEqual(data((await ask(socket, { op: 'subscribe', subject: 'room/1', last: 5 }))
    .ok.events), [2]);
  const no = await ask(socket, { op: 'subscribe', subject: 'hall/1', last: 5 });
  assert.equal(no.error.code, 'right_missing');
  socket.close();
});

// 25.2: the next brain may think that a session began a moment earlier, and send more than 20.
test('25.3 a brain that is killed while sessions begin: none has a hole', async () => {
  await many('k', range(1, 50));
  const streams = await Promise.all(range(1, 20).map((n) =>
    sse(halley, { user: `k${n}`, subjects: 'k', last: 20 })));
  await halley.killBrain();
  await halley.start();
  await publish(halley, 'k', 51);
  for (const stream of streams) {
    const [first] = data(await stream.events.take(1));
    assert.ok(first >= 1 && first <= 31, `begins with ${first}`);
    assert.deepEqual(data(await stream.events.take(51 - first)), range(first + 1, 51));
  }
  await publish(halley, 'k', 52);
  for (const stream of streams) {
    assert.equal((await stream.event('no double between')).data, 52);
    stream.close();
  }
});
