// protocol/http.md 27: what is about some subjects is shown for another time than the retention.

import assert from 'node:assert/strict';
import { after, before } from 'node:test';
import { api, follow, publish } from '../lib/client.mjs';
import { start, test } from '../lib/halley.mjs';
import { closeStreams, poll, sse } from '../lib/streams.mjs';
import { until } from '../lib/wait.mjs';

/** Long enough for whoever asks for what was published a moment ago. */
const AGE = '5s';

let halley;
before(async () => {
  halley = await start({ settings: { HALLEY_HISTORY_RETENTION_OF: `room/* ${AGE}, room/7 1m` } });
});
after(async () => {
  closeStreams();
  await halley?.stop();
});

const data = (events) => events.map((event) => event.data);

test('27.1, 27.2 too old for its subject: left out, and told', async () => {
  await follow(halley, ['bob', 'room/1'], ['bob', 'room/7'], ['bob', 'live']);
  const { cursor } = await poll(halley, 'bob', { timeout: 0 });
  for (const subject of ['room/1', 'room/7', 'live']) await publish(halley, subject, 'old');
  const page = async (subject) =>
    (await api(halley, 'GET', `/v1/subjects/${encodeURIComponent(subject)}/events`)).json;
  await until('it is too old', async () => (await page('room/1')).events.length === 0);
  await publish(halley, 'room/1', 'new');
  const stream = await sse(halley, 'bob', {}, cursor);
  assert.deepEqual(data(await stream.events.take(3)), ['old', 'old', 'new']);
  const gap = await stream.gaps.next('the gap');
  assert.equal(gap.reason, 'too_old');
  assert.ok(gap.from <= gap.to && gap.to <= Date.now());
  await stream.gaps.none('another gap', 100);
  stream.close();
  const room = await page('room/1');
  assert.deepEqual([data(room.events), room.gaps[0].reason, room.next], [['new'], 'too_old', null]);
  assert.deepEqual([data((await page('room/7')).events), (await page('live')).gaps], [['old'], []]);
  const newest = await sse(halley, { user: 'eve', subjects: 'room/1,room/7', last: 5 });
  assert.deepEqual(data(await newest.events.take(2)), ['old', 'new']);
  newest.close();
});

test('27.1 an age that is longer than the retention', async () => {
  const longer = await start({ settings: { HALLEY_HISTORY_RETENTION: AGE,
    HALLEY_HISTORY_RETENTION_OF: 'room/* 1m' } });
  try {
    await follow(longer, ['bob', 'room/1'], ['bob', 'live']);
    const { cursor } = await poll(longer, 'bob', { timeout: 0 });
    for (const subject of ['room/1', 'live']) await publish(longer, subject, subject);
    const alone = await api(longer, 'POST', '/v1/events', { to: ['bob'], data: 'private' });
    assert.equal(alone.status, 200);
    await until('two are too old', async () =>
      (await poll(longer, 'bob', { cursor, timeout: 0 })).events.length === 1);
    await publish(longer, 'live', 'new');
    const stream = await sse(longer, 'bob', {}, cursor);
    assert.deepEqual(data(await stream.events.take(2)), ['room/1', 'new']);
    assert.equal((await stream.gaps.next('the gap')).reason, 'too_old');
    stream.close();
    const page = async (subject) =>
      (await api(longer, 'GET', `/v1/subjects/${encodeURIComponent(subject)}/events`)).json;
    assert.deepEqual([data((await page('room/1')).events), data((await page('live')).events)],
      [['room/1'], ['new']]);
    const newest = await sse(longer, { subjects: 'room/1,live', last: 5 });
    assert.deepEqual(data(await newest.events.take(2)), ['room/1', 'new']);
    newest.close();
    const history = await api(longer, 'GET', '/v1/history');
    assert.deepEqual([history.json.retention_ms, history.json.kept_ms], [5_000, 60_000]);
    assert.match(longer.log, /history\.retention_of: all events stay on disk/);
  } finally {
    await longer.stop();
  }
});
