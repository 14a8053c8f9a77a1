// Issue "Nothing lost" 1, 4, 9 and delivery.md: acknowledged events are kept, once, for as long as
// configured, and the history reports those that it can't give any longer.

import assert from 'node:assert/strict';
import { appendFileSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { before } from 'node:test';
import { api, follow, publish, sessionsOf } from '../lib/client.mjs';
import { assertError } from '../lib/expect.mjs';
import { prepare, start, test } from '../lib/halley.mjs';
import { Raw } from '../lib/raw.mjs';
import { onSmallDisk } from '../lib/small-disk.mjs';
import { open, poll, sse } from '../lib/streams.mjs';
import { until } from '../lib/wait.mjs';
import { endAfter } from '../lib/world.mjs';

const ndjson = { 'content-type': 'application/x-ndjson' };

let halley;
before(async () => { halley = await start(); });
endAfter(() => [halley]);

const now = async (user, on = halley) => (await poll(on, user, { timeout: 0 })).cursor;
const data = (events) => events.map((event) => event.data);

/** Everything about `user` since `cursor`, of which there is something: it is answered at once. */
const since = async (user, cursor, on = halley) =>
  data((await poll(on, user, { cursor, timeout: 20 })).events);

async function crash(on) {
  await on.killBrain();
}

function segments(on) {
  const folder = join(on.settings.HALLEY_DATA_DIR, 'history');
  return readdirSync(folder).filter((name) => name.endsWith('.log')).sort()
    .map((name) => join(folder, name));
}

test('the same id again: the first answer, and no second event', async () => {
  const cursor = await now('ann');
  const stream = await sse(halley, 'ann');
  const first = await publish(halley, 'ann', 1, { id: 'order-17' });
  assert.deepEqual(first, { id: 'order-17', sessions: 1 });
  stream.close();
  await until('no session', async () => await sessionsOf(halley, 'ann') === 0);
  for (const again of [1, 2]) {
    assert.deepEqual(await publish(halley, 'ann', again, { id: 'order-17' }), first);
  }
  assert.deepEqual(await publish(halley, 'another', 3, { id: 'order-17' }), first,
    'whichever subject it names');
  assert.deepEqual(await since('ann', cursor), [1]);
});

test('the same id from forty publishers at the same time: one event', async () => {
  const cursor = await now('bob');
  const answers = await Promise.all(Array.from({ length: 40 }, (_, n) =>
    publish(halley, 'bob', n, { id: 'race' })));
  for (const answer of answers) assert.deepEqual(answer, answers[0]);
  assert.equal((await since('bob', cursor)).length, 1);
});

test('the same id in one batch, and about different subjects at the same time: one event',
  async () => {
  const cursor = await now('cat');
  const line = (subject) => `${JSON.stringify({ id: 'twice', subject, data: subject })}\n`;
  const { body } = await api(halley, 'POST', '/v1/events', line('cat').repeat(3), ndjson);
  assert.deepEqual(body.trim().split('\n').map((text) => JSON.parse(text).id),
    ['twice', 'twice', 'twice']);
  assert.deepEqual(await since('cat', cursor), ['cat']);
  const [c, d] = [await now('cid'), await now('dan')];
  await Promise.all(Array.from({ length: 20 }, (_, n) =>
    publish(halley, n % 2 === 0 ? 'cid' : 'dan', n, { id: 'either' })));
  for (const user of ['cid', 'dan']) await publish(halley, user, 'end');
  const found = [...await since('cid', c), ...await since('dan', d)];
  assert.equal(found.filter((it) => it !== 'end').length, 1);
});

test('an id is remembered over a kill -9 of the brain', async () => {
  const cursor = await now('eve');
  const first = await publish(halley, 'eve', 1, { id: 'kept' });
  await crash(halley);
  await halley.start();
  assert.deepEqual(await publish(halley, 'eve', 2, { id: 'kept' }), first);
  assert.deepEqual(await since('eve', cursor), [1]);
});

test('without an id each publish is an event of its own, with an id of its own', async () => {
  const ids = new Set();
  for (let n = 0; n < 20; n += 1) ids.add((await publish(halley, 'fay', 1)).id);
  assert.equal(ids.size, 20);
});

test('ack: "disk", "memory", nothing else; each line of a batch has its own', async () => {
  for (const ack of ['disk', 'memory']) await publish(halley, 'gil', 1, { ack });
  for (const ack of ['', 'none', null, 1, true, 'DISK']) {
    const answer = await api(halley, 'POST', '/v1/events', { subject: 'gil', data: 1, ack });
    assertError(answer, 400);
  }
  const lines = ['disk', 'memory', 'never'].map((ack) =>
    `${JSON.stringify({ subject: 'gil', data: 1, ack })}\n`).join('');
  const { body } = await api(halley, 'POST', '/v1/events', lines, ndjson);
  const results = body.trim().split('\n').map((line) => JSON.parse(line));
  assert.deepEqual(results.map(({ error }) => error === undefined), [true, true, false]);
});

test('an acknowledged event is in the log when the answer comes', async () => {
  const needle = 'a-needle-in-the-log';
  await publish(halley, 'hal', needle);
  assert.ok(segments(halley).some((file) => readFileSync(file).includes(needle)));
});

test('kill -9 right after the answer, again and again: every acknowledged event is there',
  async () => {
  const cursor = await now('ida');
  const LAST = 6;
  for (let n = 1; n <= LAST; n += 1) {
    await publish(halley, 'ida', n);
    await crash(halley);
    await halley.start();
  }
  assert.deepEqual(await since('ida', cursor), Array.from({ length: LAST }, (_, n) => n + 1));
});

test('garbage behind the log\'s end: it starts, says that it cut it, and has lost nothing',
  async () => {
  const cursor = await now('jan');
  await publish(halley, 'jan', 1);
  await crash(halley);
  appendFileSync(segments(halley).at(-1), Buffer.from('not a record, whatever it was'));
  const before = halley.log.length;
  await halley.start();
  await until('the log says so', () => /tail .* is cut/.test(halley.log.slice(before)));
  await publish(halley, 'jan', 2);
  assert.deepEqual(await since('jan', cursor), [1, 2]);
});

test('a damaged record: a gap tells who comes back over it, and the others are there', async () => {
  const cursor = await now('kim');
  for (const n of [1, 2, 3]) await publish(halley, 'kim', `damaged-${n}`);
  await crash(halley);
  const file = segments(halley).at(-1);
  const bytes = readFileSync(file);
  bytes[bytes.indexOf('damaged-2') + 3] ^= 1;
  writeFileSync(file, bytes);
  await halley.start();
  const { gap, events } = await poll(halley, 'kim', { cursor, timeout: 20 });
  assert.equal(gap.reason, 'damaged');
  assert.ok(gap.from <= Date.now() && gap.to >= gap.from, JSON.stringify(gap));
  assert.deepEqual(data(events), ['damaged-1', 'damaged-3']);
  // Who leaves between the gap and what follows it, and comes back with the gap's own cursor.
  const raw = await Raw.open(halley.publicPort);
  raw.send(`GET /v1/stream?user=kim&cursor=${cursor} HTTP/1.1\r\nHost: h\r\n`
    + 'Accept: application/x-ndjson\r\n\r\n');
  const line = await until('the gap', () => /\{"cursor":"([^"]+)","gap"/.exec(raw.bytes));
  raw.close();
  const before = line.input.slice(0, line.index).match(/damaged-\d/g) ?? [];
  await publish(halley, 'kim', 'end');
  assert.deepEqual([...before, ...await since('kim', line[1])],
    ['damaged-1', 'damaged-3', 'end']);
});

test('history.retention: a cursor that is older gets a gap with its times, then live events',
  async () => {
  // Long enough for whoever asks for what was published a moment ago.
  const short = await start({ settings: { HALLEY_HISTORY_RETENTION: '5s',
    HALLEY_LIMITS_HISTORY_SEGMENT_BYTES: '65536' } });
  try {
    const began = Date.now();
    const cursor = await now('lea', short);
    const given = Date.now();
    await publish(short, 'lea', 'old', { id: 'old' });
    await until('the event is gone', async () => {
      const { gap, events } = await poll(short, 'lea', { cursor, timeout: 0 });
      if (!gap) assert.deepEqual(data(events), ['old'], 'no silent hole');
      return gap;
    }, 60_000);
    for (const [name, opening] of Object.entries(open)) {
      const stream = await opening(short, 'lea', {}, cursor);
      const gap = await stream.gaps.next(`a gap by ${name}`);
      assert.equal(gap.reason, 'too_old');
      assert.ok(gap.from === null || gap.from <= given + 1_000, JSON.stringify(gap));
      assert.ok(gap.to >= began && gap.to <= Date.now(), JSON.stringify(gap));
      await publish(short, 'lea', name);
      while ((await stream.event(`the live event by ${name}`)).data !== name);
      stream.close();
    }
    await publish(short, 'lea', 'again', { id: 'old' });
    const fresh = await now('lea', short);
    await publish(short, 'lea', 'new');
    assert.deepEqual(await since('lea', fresh, short), ['new'], 'a new cursor is fine');
  } finally {
    await short.stop();
  }
});

test('history.bytes: the disk stays within it, the oldest go, who missed them is told',
  async () => {
  const small = await prepare({ settings: { HALLEY_HISTORY_BYTES: '1MB',
    HALLEY_LIMITS_HISTORY_SEGMENT_BYTES: '131072' } });
  await small.start();
  try {
    const cursor = await now('mia', small);
    for (let n = 0; n < 100; n += 1) await publish(small, 'mia', 'x'.repeat(30_000));
    await until('the oldest are gone', async () =>
      (await poll(small, 'mia', { cursor, timeout: 0 })).gap?.reason === 'too_old');
    const total = () => segments(small).reduce((sum, file) => sum + statSync(file).size, 0);
    await until('the disk is within its bound, but for a segment', () => total() <= 1_179_648);
  } finally {
    await small.stop();
  }
});

test('why did U not get E: the trace says', async () => {
  await follow(halley, ['nia', 'news'], ['off', 'news']);
  const stream = await sse(halley, 'nia');
  const { id } = await publish(halley, 'news', 1);
  await stream.event();
  const trace = (user) => api(halley, 'GET', `/v1/events/${id}/trace?user=${user}`);
  const seen = await trace('nia');
  assert.equal(seen.status, 200, seen.body);
  for (const user of ['off', 'stranger']) assert.equal((await trace(user)).status, 200);
  assert.notEqual((await trace('stranger')).body, (await trace('off')).body);
  assertError(await api(halley, 'GET', `/v1/events/${id}/trace`), 400);
  assertError(await api(halley, 'GET', '/v1/events/never-published/trace?user=nia'), 404);
  stream.close();
});

test('disk full: 503 disk_full, streams go on, nothing acknowledged is lost', (context) =>
  onSmallDisk(context, async (full, disk) => {
    await full.start();
    const cursor = await now('ora', full);
    const stream = await sse(full, 'ora');
    const acked = [];
    disk.fill(200_000);
    const refusals = [];
    for (let n = 0; n < 200 && refusals.length < 3; n += 1) {
      const answer = await api(full, 'POST', '/v1/events',
        { subject: 'ora', data: [n, 'x'.repeat(20_000)], id: `full-${n}` });
      if (answer.status === 200) acked.push(n);
      else refusals.push(answer);
    }
    // The first is the one that met the end of the disk: it went to those who are there, and
    // nobody knows better than `history_failed`. From then on nothing is accepted.
    for (const refusal of refusals) {
      assertError(refusal, 503);
      assert.match(refusal.headers['retry-after'], /^\d+$/);
    }
    assert.deepEqual(refusals.slice(1).map(({ json }) => json.error.code),
      ['disk_full', 'disk_full']);
    assert.equal((await api(full, 'GET', '/healthz')).status, 200);
    assert.equal(await sessionsOf(full, 'ora'), 1);
    disk.free();
    await until('it takes events again', async () =>
      (await api(full, 'POST', '/v1/events', { subject: 'ora', data: ['end'] })).status === 200);
    for (const place of [stream, await sse(full, 'ora', {}, cursor)]) {
      const seen = new Set();
      while (!seen.has('end')) seen.add((await place.event('an event')).data[0]);
      for (const n of acked) assert.ok(seen.has(n), `event ${n}`);
      place.close();
    }
    await full.terminate();
  }));
