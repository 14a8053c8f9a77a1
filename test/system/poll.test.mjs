// protocol/http.md 11 and contract.md: long-poll, with the same guarantees as a stream and nothing
// kept between two polls.

import assert from 'node:assert/strict';
import { Agent } from 'node:http';
import { after, before } from 'node:test';
import { curl, follow, http, publish, sessionsOf } from '../lib/client.mjs';
import { assertError, assertEvent } from '../lib/expect.mjs';
import { start, test } from '../lib/halley.mjs';
import { Raw } from '../lib/raw.mjs';
import { poll } from '../lib/streams.mjs';
import { until } from '../lib/wait.mjs';

let halley;
before(async () => { halley = await start(); });
after(() => halley?.stop());

const now = async (user) => (await poll(halley, user, { timeout: 0 })).cursor;

test('11.3 timeout=0 without a cursor: no events, and a cursor to begin with', async () => {
  const answer = await curl([`${halley.publicUrl}/v1/poll?user=ann&timeout=0`]);
  assert.equal(answer.status, 200);
  assert.match(answer.headers['content-type'], /^application\/json/);
  assert.equal(answer.headers['cache-control'], 'no-store');
  assert.deepEqual(answer.json.events, []);
  assert.match(answer.json.cursor, /^[A-Za-z0-9_-]{1,255}$/);
  assert.deepEqual(Object.keys(answer.json).sort(), ['cursor', 'events']);
});

test('11.3 what was missed is answered at once, 11.1 without cursors in the events', async () => {
  const cursor = await now('bob');
  await publish(halley, 'bob', { n: 1 });
  await publish(halley, 'bob', 'two');
  const started = Date.now();
  const { events, cursor: next } = await poll(halley, 'bob', { cursor, timeout: 20 });
  assert.ok(Date.now() - started < 10_000, 'at once');
  assertEvent(events[0], 'bob', { n: 1 });
  assertEvent(events[1], 'bob', 'two');
  for (const event of events) assert.equal(event.cursor, undefined);
  assert.deepEqual((await poll(halley, 'bob', { cursor: next, timeout: 0.1 })).events, []);
});

test('11.3 a poll waits for an event and brings it when it comes', async () => {
  await follow(halley, ['cat', 'news']);
  const cursor = await now('cat');
  const answer = poll(halley, 'cat', { cursor, timeout: 20 });
  await until('she is there', async () => await sessionsOf(halley, 'cat') === 1);
  const started = Date.now();
  await publish(halley, 'news', 1);
  assert.deepEqual((await answer).events.map((event) => event.data), [1]);
  assert.ok(Date.now() - started < 10_000);
  await until('11.4 no session is left', async () => await sessionsOf(halley, 'cat') === 0);
});

test('a poll without a cursor waits for what is new', async () => {
  await publish(halley, 'dan', 'old');
  const answer = poll(halley, 'dan', { timeout: 20 });
  await until('he is there', async () => await sessionsOf(halley, 'dan') === 1);
  await publish(halley, 'dan', 'new');
  assert.deepEqual((await answer).events.map((event) => event.data), ['new']);
});

test('11.2 after timeout: no events and a cursor; fractions of a second count', async () => {
  for (const timeout of ['1', '0.5', '0.25']) {
    const ms = 1_000 * Number(timeout);
    // A busy machine makes one of them late, not all.
    await until(`the answer after ${timeout} s`, async () => {
      const cursor = await now('eve');
      const started = Date.now();
      const answer = await poll(halley, 'eve', { cursor, timeout });
      const took = Date.now() - started;
      assert.equal(answer.status, 200, timeout);
      assert.deepEqual(answer.events, []);
      assert.ok(took >= ms - 20 && took < ms + 700, `${timeout} took ${took} ms`);
      return true;
    });
  }
});

test('11.2 a timeout that is none: 400 bad_timeout', async () => {
  for (const timeout of ['', 'x', '-1', '1e3', '1.2.3', '0x10', ' 1', '+1', 'NaN', 'Infinity']) {
    const answer = await poll(halley, 'eve', { timeout: encodeURIComponent(timeout) });
    assert.equal(assertError(answer, 400).code, 'bad_timeout', JSON.stringify(timeout));
  }
});

test('11.2 a timeout beyond poll_ms_max counts as that, however long', async () => {
  for (const timeout of ['99999999999999999999', '1000000.5']) {
    const cursor = await now('fay');
    const answer = poll(halley, 'fay', { cursor, timeout });
    await until('she is there', async () => await sessionsOf(halley, 'fay') === 1);
    await publish(halley, 'fay', 1);
    assert.equal((await answer).events.length, 1);
    await until('no session', async () => await sessionsOf(halley, 'fay') === 0);
  }
});

test('who is asking has to be said, and a parameter is there once', async () => {
  assertError(await http('GET', `${halley.publicUrl}/v1/poll`), 400);
  const twice = await http('GET', `${halley.publicUrl}/v1/poll?user=a&user=b`);
  assert.equal(assertError(twice, 400).code, 'duplicate_parameter');
  assertError(await http('PUT', `${halley.publicUrl}/v1/poll?user=a`), 405);
});

test('11.4 the connection stays open, poll after poll, and pipelined ones keep their order',
  async () => {
  const cursor = await now('gil');
  const raw = await Raw.open(halley.publicPort);
  const ask = `GET /v1/poll?user=gil&cursor=${cursor}&timeout=15 HTTP/1.1\r\nHost: h\r\n\r\n`;
  raw.send(ask);
  await until('he is there', async () => await sessionsOf(halley, 'gil') === 1);
  await publish(halley, 'gil', 1);
  assert.equal((await raw.answers(1))[0].json.events[0].data, 1);
  raw.send(ask, ask, ask);
  const answers = await raw.answers(4);
  for (const { json } of answers) assert.deepEqual(json.events.map(({ data }) => data), [1]);
  assert.equal(raw.isClosed, false);
  raw.close();
});

test('a client that leaves in the middle of a poll is not online any more', async () => {
  const raw = await Raw.open(halley.publicPort);
  raw.send('GET /v1/poll?user=hal&timeout=50 HTTP/1.1\r\nHost: h\r\n\r\n');
  await until('he is there', async () => await sessionsOf(halley, 'hal') === 1);
  raw.close();
  await until('he is gone', async () => await sessionsOf(halley, 'hal') === 0);
});

test('poll after poll while others publish: every event once, in order', async () => {
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  const LAST = 1_500;
  let cursor = await now('ida');
  const publishing = (async () => {
    for (let n = 1; n <= LAST; n += 1) await publish(halley, 'ida', n);
  })();
  const seen = [];
  while (seen.length < LAST) {
    const answer = await poll(halley, 'ida', { cursor, timeout: 15, agent });
    assert.equal(answer.status, 200, answer.body);
    assert.ok(answer.events.length > 0, `after ${seen.length} nothing more came`);
    seen.push(...answer.events.map((event) => event.data));
    cursor = answer.cursor;
  }
  await publishing;
  assert.deepEqual(seen, Array.from({ length: LAST }, (_, n) => n + 1));
  agent.destroy();
});

test('the same cursor twice gives the same twice: nothing is taken away by asking', async () => {
  const cursor = await now('jan');
  await publish(halley, 'jan', 1);
  for (const _ of [1, 2]) {
    const { events } = await poll(halley, 'jan', { cursor, timeout: 15 });
    assert.deepEqual(events.map((event) => event.data), [1]);
  }
});

test('11.1 a gap stands before the events, and the cursor goes on from there', async () => {
  const answer = await poll(halley, 'kim', { cursor: 'nonsense', timeout: 0 });
  assert.equal(answer.gap.reason, 'malformed');
  assert.deepEqual(answer.events, []);
  await publish(halley, 'kim', 1);
  const next = await poll(halley, 'kim', { cursor: answer.cursor, timeout: 15 });
  assert.equal(next.gap, undefined);
  assert.deepEqual(next.events.map((event) => event.data), [1]);
});

test('a poll that is open when the brain dies: an answer or 503, and nothing lost', async () => {
  const cursor = await now('lea');
  const answer = poll(halley, 'lea', { cursor, timeout: 25 });
  await until('she is there', async () => await sessionsOf(halley, 'lea') === 1);
  await halley.killBrain();
  await halley.start();
  await publish(halley, 'lea', 1);
  const { status, events } = await answer;
  assert.ok(status === 200 || status === 503, `${status}`);
  if (status === 200) assert.deepEqual(events.map((event) => event.data), [1]);
  const again = await poll(halley, 'lea', { cursor, timeout: 15 });
  assert.deepEqual(again.events.map((event) => event.data), [1]);
});

test('a hundred polls of one user: each gets the event', async () => {
  const cursor = await now('mia');
  const answers = Array.from({ length: 100 }, () => poll(halley, 'mia', { cursor, timeout: 25 }));
  await until('all are there', async () => await sessionsOf(halley, 'mia') === 100);
  await publish(halley, 'mia', 1);
  for (const answer of await Promise.all(answers)) {
    assert.deepEqual(answer.events.map((event) => event.data), [1]);
  }
  await until('no session is left', async () => await sessionsOf(halley, 'mia') === 0);
});
