// The server's status as a stream of events at the API listener (link.md 17), which the console
// shows: a session as any other, with cursors and missed events, and out of reach for other
// clients.

import assert from 'node:assert/strict';
import { before } from 'node:test';
import { api, http, publish } from '../lib/client.mjs';
import { makeKey } from '../lib/console.mjs';
import { assertError } from '../lib/expect.mjs';
import { start, test } from '../lib/halley.mjs';
import { metric } from '../lib/metrics.mjs';
import { ask, poll, sse, statusStream, ws } from '../lib/streams.mjs';
import { until } from '../lib/wait.mjs';
import { endAfter } from '../lib/world.mjs';

/** What it is about, which begins with a byte that no id has. */
const SUBJECT = '\u0003status';
const PATH = '/v1/status/stream';

let halley;
before(async () => {
  halley = await start({ settings: { HALLEY_LIMITS_STATUS_READERS_MAX: '3' } });
});
endAfter(() => [halley]);

const times = (events) => events.flatMap(({ data }) => data.samples.map(([at]) => at));
const streams = () => metric(halley, 'halley_status_streams');
const bearer = (key) => ({ authorization: `Bearer ${key}` });

/** None twice, none missing of those that the server took: a busy machine makes some late. */
async function assertUnbroken(samples) {
  assert.ok(samples.length > 1);
  const taken = times([{ data: (await api(halley, 'GET', '/v1/status')).json }]);
  assert.deepEqual(samples, taken.filter((at) => at >= samples[0] && at <= samples.at(-1)));
}

/** A sample comes each second: two in a row do, however late others are. */
async function assertEachSecond(stream) {
  let [before, last] = [-Infinity, -Infinity];
  const is = (ms) => ms > 500 && ms < 1900;
  await until('a sample each second', async () => {
    const at = times([await stream.event()]).at(-1);
    const isSo = is(at - last) && is(last - before);
    [before, last] = [last, at];
    return isSo;
  });
}

/** Closes streams, and waits until they have given their places to others. */
async function closeAll(...all) {
  for (const one of all) one.close();
  await until('nobody follows it', async () => await streams() === 0);
}

/** A stream that stays: when keys change all end once more, seconds behind the change. */
const staying = (key) => until('a stream that stays', async () => {
  const stream = await statusStream(halley, {}, bearer(key));
  await stream.events.take(3, 'the status');
  return stream;
});

test('each second an event has what /v1/status answers, and none is counted', async () => {
  const stream = await statusStream(halley);
  const events = await stream.events.take(3, 'the status');
  await assertUnbroken(times(events));
  await assertEachSecond(stream);
  const asked = (await api(halley, 'GET', '/v1/status')).json;
  for (const { subject, data } of events) {
    assert.equal(subject, SUBJECT);
    assert.deepEqual(Object.keys(data), Object.keys(asked));
    assert.deepEqual(data.columns, asked.columns);
    assert.equal(data.samples[0].length, asked.columns.length + 1);
  }
  assert.equal(await streams(), 1);
  assert.equal(await metric(halley, 'halley_events_published_total'), 0);
  assert.equal(await metric(halley, 'halley_deliveries_total'), 0);
  const { by_events: busy } = (await api(halley, 'GET', '/v1/top')).json;
  await stream.event();
  await stream.event();
  assert.deepEqual([busy, (await api(halley, 'GET', '/v1/top')).json.by_events], [[], []]);
  await closeAll(stream);
});

test('who comes back with a cursor has each second; last= gives the newest at once', async () => {
  const stream = await statusStream(halley);
  const first = await stream.events.take(2, 'the status');
  const cursor = stream.cursor;
  stream.close();
  const other = await statusStream(halley);
  const [missed] = await other.events.take(3, 'the status');
  const newest = await statusStream(halley, { last: 2 });
  const [before] = await newest.events.take(2, 'the newest');
  assert.ok(times([before])[0] >= times([missed])[0]);
  const back = await statusStream(halley, { last: 2 }, { 'last-event-id': cursor });
  const then = await back.events.take(4, 'what it missed');
  await assertUnbroken(times([...first, ...then]));
  await closeAll(other, newest, back);
});

test('after a pause the first event has the samples of the pause', async () => {
  const stream = await statusStream(halley);
  await stream.event();
  const last = times([await stream.event()]).at(-1);
  await closeAll(stream);
  const newest = async () => (await api(halley, 'GET', '/v1/status')).json.samples.at(-1)[0];
  const since = await newest();
  await until('some seconds are over', async () => await newest() > since + 3000);
  const back = await statusStream(halley, {}, { 'last-event-id': stream.cursor });
  const events = [await back.event()];
  // Some may have been published behind the last that was read.
  while (events.at(-1).data.samples.length < 2) events.push(await back.event());
  await assertUnbroken([last, ...times(events)]);
  await closeAll(back);
});

test('as many as limits.status_readers_max, held ones as well; one more is told so', async () => {
  const three = [await statusStream(halley), await statusStream(halley, { last: 1 }),
    await statusStream(halley)];
  const refused = await http('GET', halley.apiUrl + PATH);
  assert.equal(assertError(refused, 503).code, 'too_many_readers');
  assert.equal(refused.headers['retry-after'], '1');
  assert.equal(await metric(halley, 'halley_status_refused_total'), 1);
  three.pop().close();
  await until('there is room', async () => await streams() === 2);
  const fourth = await statusStream(halley);
  assert.equal(fourth.status, 200);
  await closeAll(...three, fourth);
});

test('it is the API\'s alone, by GET', async () => {
  assertError(await http('GET', halley.publicUrl + PATH), 404);
  assertError(await http('POST', halley.apiUrl + PATH), 405);
  const head = await http('HEAD', halley.apiUrl + PATH);
  assert.deepEqual([head.status, head.headers['content-type']], [200, 'text/event-stream']);
  for (const last of ['0', 'x', '101']) {
    const answer = await http('GET', `${halley.apiUrl}${PATH}?last=${last}`);
    assert.equal(assertError(answer, 400).code, 'bad_last');
  }
});

/** Every door at which somebody can name a subject or a user. */
const path = encodeURIComponent(SUBJECT);
const DOORS = {
  publish: () => api(halley, 'POST', '/v1/events', { subject: SUBJECT, data: 1 }),
  'publish, one of several': () =>
    api(halley, 'POST', '/v1/events', { subjects: ['a', SUBJECT], data: 1 }),
  'publish to it as a user': () => api(halley, 'POST', '/v1/events', { to: [SUBJECT], data: 1 }),
  'publish as a user': () => http('POST', `${halley.publicUrl}/v1/me/events?user=ann`,
    { body: JSON.stringify({ subject: SUBJECT, data: 1 }) }),
  'follow as a user': () =>
    http('PUT', `${halley.publicUrl}/v1/me/follows/${path}?user=ann`),
  'its past': () => api(halley, 'GET', `/v1/subjects/${path}/events`),
  'its past, as a user': () =>
    http('GET', `${halley.publicUrl}/v1/me/subjects/${path}/events?user=ann`),
  'its presence': () => api(halley, 'GET', `/v1/subjects/${path}/presence`),
  'its presence, as a user': () =>
    http('GET', `${halley.publicUrl}/v1/me/subjects/${path}/presence?user=ann`),
  'its followers': () => api(halley, 'GET', `/v1/subjects/${path}/followers`),
  'it as a user': () => api(halley, 'GET', `/v1/users/${path}`),
  'its sessions': () => api(halley, 'GET', `/v1/users/${path}/sessions`),
  'a stream about it': () =>
    http('GET', `${halley.publicUrl}/v1/stream?user=ann&subjects=${path}`),
  'a visitor\'s stream': () =>
    http('GET', `${halley.publicUrl}/v1/stream?subject=a&subject=${path}`),
  'a stream of its': () => http('GET', `${halley.publicUrl}/v1/stream?user=${path}`),
  'the article\'s stream': () => http('GET', `${halley.publicUrl}/test/${path}`),
  'a poll about it': () => poll(halley, { user: 'ann', subjects: SUBJECT, timeout: 0 }),
  'a poll of its newest': () => poll(halley, { subjects: SUBJECT, last: 3, timeout: 0 }),
};

test('no door lets anybody name what it is about', async () => {
  const stream = await statusStream(halley);
  await stream.event();
  for (const [door, knock] of Object.entries(DOORS)) {
    const answer = await knock();
    assert.equal(answer.status, 400, `${door}: ${answer.status} ${answer.body}`);
    assert.match(assertError(answer, 400).code, /^bad_/, door);
  }
  const follows = await api(halley, 'POST', '/v1/follows', `${JSON.stringify(
    { user: 'ann', subject: SUBJECT })}\n`, { 'content-type': 'application/x-ndjson' });
  assert.deepEqual([follows.json.added, follows.json.errors.length], [0, 1]);
  const socket = await ws(halley, 'ann');
  for (const operation of [
    { op: 'subscribe', subject: SUBJECT }, { op: 'subscribe', subject: SUBJECT, last: 3 },
    { op: 'publish', subject: SUBJECT, data: 1 }, { op: 'follow', subject: SUBJECT },
  ]) {
    const answer = await ask(socket, operation);
    assert.match(answer.error.code, /^bad_/, JSON.stringify(operation));
  }
  await stream.event();
  await socket.quiet('the status', 200);
  socket.close();
  await closeAll(stream);
});

test('whoever has a cursor of it gets none of it by that', async () => {
  const stream = await statusStream(halley);
  await stream.event();
  const thief = await sse(halley, { user: 'ann', subjects: 'a' }, {}, stream.cursor);
  await stream.event();
  await publish(halley, 'a', 1);
  assert.equal((await thief.event()).data, 1);
  thief.close();
  await closeAll(stream);
});

test('a kill of the brain: the stream ends, and is there again with what it missed', async () => {
  const stream = await statusStream(halley);
  const events = await stream.events.take(2, 'the status');
  await halley.killBrain();
  await halley.start();
  await stream.ended();
  const rest = stream.events.drain();
  const back = await statusStream(halley, {}, { 'last-event-id': stream.cursor });
  const [next] = await back.events.take(1, 'the status');
  assert.ok(times([next])[0] > times([...events, ...rest]).at(-1));
  await closeAll(back);
});

test('a key is needed as for /v1/status; one that is revoked ends its streams', async () => {
  const reader = await makeKey(halley, 'reader', 'read');
  const other = await makeKey(halley, 'other', 'read');
  const publisher = await makeKey(halley, 'publisher', 'publish');
  await until('a key is needed', async () =>
    (await api(halley, 'GET', '/v1/status')).status === 401);
  const missing = await http('GET', halley.apiUrl + PATH);
  assert.equal(assertError(missing, 401).code, 'key_missing');
  const twice = await http('GET', halley.apiUrl + PATH, { headers: bearer('hk_x_y') });
  assertError(twice, 401);
  const wrong = await http('GET', halley.apiUrl + PATH, { headers: bearer(publisher) });
  assert.equal(assertError(wrong, 403).code, 'scope_missing');
  const stream = await staying(reader);
  const kept = await statusStream(halley, {}, bearer(other));
  assert.equal((await halley.command('key', 'revoke', 'reader')).code, 0);
  await stream.ended();
  await kept.ended();
  const refused = await http('GET', halley.apiUrl + PATH,
    { headers: { ...bearer(reader), 'last-event-id': stream.cursor } });
  assert.equal(assertError(refused, 401).code, 'key_unknown');
  const back = await statusStream(halley, {},
    { ...bearer(other), 'last-event-id': kept.cursor });
  await back.event();
  back.close();
});

test('a drain ends it', async () => {
  const key = await makeKey(halley, 'last', 'read');
  const stream = await staying(key);
  halley.stop();
  await stream.ended(20_000);
  assert.ok(Number(stream.last_retry) > 0, 'it says when to come back');
});
