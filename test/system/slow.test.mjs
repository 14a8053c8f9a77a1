// protocol/http.md 12: what happens to a client that reads slower than it is sent to, by policy.

import assert from 'node:assert/strict';
import { after } from 'node:test';
import { api, publish, sessionsOf } from '../lib/client.mjs';
import { start, test } from '../lib/halley.mjs';
import { metric } from '../lib/metrics.mjs';
import { Raw } from '../lib/raw.mjs';
import { closeStreams, open, sse } from '../lib/streams.mjs';
import { until } from '../lib/wait.mjs';

// More than sockets and outbox hold together, so that the outbox decides.
const EVENTS = 400;
const BYTES = 30_000;

const settings = (policy, more = {}) => ({
  HALLEY_PUBLIC_SLOW_CONSUMER: policy,
  HALLEY_LIMITS_OUTBOX_BYTES_MAX: '262144',
  HALLEY_LIMITS_OUTBOX_MS_MAX: '120000',
  ...more,
});

/** Runs `body` against a Halley with that policy. */
async function withPolicy(policy, more, body) {
  const halley = await start({ settings: settings(policy, more) });
  try {
    await body(halley);
  } finally {
    closeStreams();
    await halley.stop();
  }
}

after(() => closeStreams());

/** A connection that has got its welcome and reads nothing more. */
async function sleeper(halley, user, accept = 'application/x-ndjson') {
  const raw = await Raw.open(halley.publicPort);
  raw.send(`GET /v1/stream?user=${user} HTTP/1.1\r\nHost: h\r\nAccept: ${accept}\r\n\r\n`);
  await until('the session', async () => await sessionsOf(halley, user) === 1);
  await raw.text('cursor');
  raw.socket.pause();
  return raw;
}

async function flood(halley, subjects) {
  const pad = 'x'.repeat(BYTES);
  for (let n = 1; n <= EVENTS; n += 1) {
    await publish(halley, subjects[n % subjects.length], [n, pad]);
  }
}

/** What an NDJSON connection has received, as values, once `end` is among it. */
async function readAll(raw, end) {
  raw.socket.resume();
  const text = () => raw.bytes.toString('latin1');
  await until('the last event', () => text().includes(end));
  const lines = text().slice(text().indexOf('\r\n\r\n') + 4).split('\r\n').join('').split('\n');
  return lines.map((line) => /\{.*\}/.exec(line)?.[0]).filter(Boolean).map((line) => {
    try {
      return JSON.parse(line);
    } catch {
      return { unreadable: line.slice(0, 80) };
    }
  });
}

test('12.2 disconnect: it is closed, the others aren\'t, and its cursor brings everything',
  async () => {
  await withPolicy('disconnect', {}, async (halley) => {
    const slow = await sleeper(halley, 'ann');
    const quick = await sse(halley, 'ann');
    const { cursor } = JSON.parse(/\{"cursor":"[^"]+"\}/.exec(slow.bytes.toString())[0]);
    await flood(halley, ['ann']);
    await until('the slow one is gone', async () => await sessionsOf(halley, 'ann') === 1);
    for (let n = 1; n <= EVENTS; n += 1) assert.equal((await quick.event()).data[0], n);
    for (const opening of Object.values(open)) {
      const again = await opening(halley, 'ann', {}, cursor);
      for (let n = 1; n <= EVENTS; n += 1) {
        assert.equal((await again.event(`event ${n}`)).data[0], n);
      }
      again.close();
    }
    slow.close();
    await until('it is counted', async () =>
      await metric(halley, 'halley_edge_slow_consumers_total') > 0);
  });
});

test('12.3 drop_oldest: a gap tells what is missing, and the newest come', async () => {
  await withPolicy('drop_oldest', {}, async (halley) => {
    const began = Date.now();
    const slow = await sleeper(halley, 'bob');
    await flood(halley, ['bob']);
    await publish(halley, 'bob', 'the end');
    assert.equal(await sessionsOf(halley, 'bob'), 1, 'it stays connected');
    const values = await readAll(slow, 'the end');
    assert.deepEqual(values.filter((value) => value.unreadable), []);
    const gaps = values.filter((value) => value.gap).map((value) => value.gap);
    assert.ok(gaps.length > 0, 'a gap');
    const seen = new Map(values.filter((value) => value.subject)
      .map((value) => [value.data[0], value.at]));
    for (const gap of gaps) {
      assert.equal(gap.reason, 'slow_consumer');
      assert.ok(gap.from >= began && gap.to >= gap.from && gap.to <= Date.now());
    }
    const numbers = [...seen.keys()].filter(Number.isInteger);
    assert.deepEqual(numbers, [...numbers].sort((a, b) => a - b), 'in order');
    assert.ok(numbers.length < EVENTS && numbers.at(-1) === EVENTS, 'the newest are there');
    // Each hole has its gap, in its place and with its times.
    let last = 0;
    let told = null;
    let lastAt = began;
    for (const value of values) {
      if (value.gap) told = value.gap;
      if (!Number.isInteger(value.data?.[0])) continue;
      if (value.data[0] !== last + 1) {
        assert.ok(told, `a silent hole before ${value.data[0]}`);
        assert.ok(told.from >= lastAt && told.to <= value.at, 'the gap\'s times are the hole\'s');
      }
      told = null;
      [last] = value.data;
      lastAt = value.at;
    }
    slow.close();
  });
});

test('12.3 who takes nothing at all for outbox_ms_max is disconnected all the same', async () => {
  for (const policy of ['drop_oldest', 'latest_per_subject']) {
    await withPolicy(policy, { HALLEY_LIMITS_OUTBOX_MS_MAX: '1000' }, async (halley) => {
      const slow = await sleeper(halley, 'cat');
      await flood(halley, ['cat']);
      await until('it is gone', async () => await sessionsOf(halley, 'cat') === 0);
      slow.close();
    });
  }
});

test('12.4 latest_per_subject: the newest event about each subject comes', async () => {
  await withPolicy('latest_per_subject', {}, async (halley) => {
    const subjects = ['dan', 'price', 'score'];
    await api(halley, 'POST', '/v1/follows', 'dan price\ndan score\n',
      { 'content-type': 'text/plain' });
    const slow = await sleeper(halley, 'dan');
    await flood(halley, subjects);
    await publish(halley, 'dan', ['the end']);
    const values = await readAll(slow, 'the end');
    assert.deepEqual(values.filter((value) => value.unreadable), []);
    for (const subject of subjects) {
      const numbers = values.filter((value) => value.subject === subject)
        .map((value) => value.data[0]).filter(Number.isInteger);
      assert.deepEqual(numbers, [...numbers].sort((a, b) => a - b), `${subject} in order`);
      assert.ok(numbers.length < EVENTS / subjects.length, `${subject} was thinned out`);
      if (subject !== 'dan') assert.ok(numbers.at(-1) > EVENTS - 3, `the newest of ${subject}`);
    }
    slow.close();
  });
});

test('a slow client that is cut off in the middle of an event loses nothing by its cursor',
  async () => {
  await withPolicy('disconnect', { HALLEY_LIMITS_OUTBOX_MS_MAX: '1000' }, async (halley) => {
    const stream = await sse(halley, 'eve');
    const seen = [];
    stream.outgoing.socket.pause();
    const flooding = flood(halley, ['eve']);
    await until('it is cut off', async () => await sessionsOf(halley, 'eve') === 0, 60_000);
    stream.outgoing.socket.resume();
    await stream.ended();
    for (const event of stream.events.drain()) seen.push(event.data[0]);
    const { cursor } = stream;
    await flooding;
    // Who is held up for a second is cut off again, and comes back again.
    for (let place = cursor; seen.at(-1) !== EVENTS;) {
      const again = await sse(halley, 'eve', {}, place);
      while (seen.at(-1) !== EVENTS) {
        const event = await again.event('what is left').catch((error) => {
          if (!again.isClosed) throw error;
        });
        if (event === undefined) break;
        seen.push(event.data[0]);
      }
      place = again.cursor;
      again.close();
    }
    assert.deepEqual(seen, Array.from({ length: EVENTS }, (_, n) => n + 1));
  });
});

// docs/reference/http-api.md, "Close sessions": "It also closes and counts sessions that came back
// and still receive missed events".
test('a client that is still sent what it missed is closed with its user\'s sessions', async () => {
  await withPolicy('disconnect', {}, async (halley) => {
    const before = await sse(halley, 'ben');
    const cursor = await before.place();
    before.close();
    await until('it has left', async () => await sessionsOf(halley, 'ben') === 0);
    await flood(halley, ['ben']);
    const back = await Raw.open(halley.publicPort);
    back.socket.pause();
    back.send(`GET /v1/stream?user=ben&cursor=${cursor} HTTP/1.1\r\nHost: h\r\n`
      + 'Accept: application/x-ndjson\r\n\r\n');
    await until('it is held', async () => await metric(halley, 'halley_edge_held_sessions') === 1);
    const { json } = await api(halley, 'DELETE', '/v1/users/ben/sessions');
    assert.deepEqual(json, { closed: 1 });
    back.socket.resume();
    await until('it is closed', () => back.isClosed);
    const text = back.bytes.toString('latin1');
    assert.ok(text.endsWith('\r\n0\r\n\r\n'), 'its answer ends');
    assert.ok(!text.includes(`"data":[${EVENTS},`), 'not all of what it missed');
  });
});
