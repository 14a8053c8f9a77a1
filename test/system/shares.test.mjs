// docs/internals/shares.md: of what all share, one user takes a part. Here a user of each row's own
// takes what it can; another user and a server still get through, after a restart too.

import assert from 'node:assert/strict';
import { after, before } from 'node:test';
import { api, http, publish, sessionsOf } from '../lib/client.mjs';
import { assertError } from '../lib/expect.mjs';
import { start, test } from '../lib/halley.mjs';
import { metric } from '../lib/metrics.mjs';
import { Raw } from '../lib/raw.mjs';
import { closeStreams, poll, sse } from '../lib/streams.mjs';
import { until } from '../lib/wait.mjs';

let halley;
before(async () => {
  halley = await start({ settings: {
    HALLEY_HISTORY_BYTES: '64MB', HALLEY_LIMITS_KEPT_BYTES_MAX: '200000',
    HALLEY_LIMITS_BYTES_PER_USER_PER_S_MAX: '100000000',
    // 2 for one user, 36 for all users.
    HALLEY_EDGE_WORKERS: '1', HALLEY_LIMITS_REQUESTS_IN_FLIGHT_MAX: '40',
    HALLEY_LIMITS_CLOSINGS_MAX: '200', HALLEY_LIMITS_OPENINGS_MAX: '200' } });
});
after(async () => {
  closeStreams();
  await halley?.stop();
});

/** The user's own request at the public listener. */
const own = (user, method, path, body) =>
  http(method, `${halley.publicUrl}/v1/me/${path}?user=${encodeURIComponent(user)}`,
    { body: JSON.stringify(body), headers: { 'content-type': 'application/json' } });

const keep = (user, subject, data) => own(user, 'POST', 'events', { subject, data, keep: true });
const keptByServer = (subject, value) =>
  api(halley, 'POST', '/v1/events', { subject, data: value, keep: true });

/** Asks until that is refused; gives the refusal. */
async function fill(most, ask) {
  for (let n = 0; n < most; n += 1) {
    const answer = await ask(n);
    if (answer.status !== 200) return answer;
  }
  return assert.fail(`${most} were accepted`);
}

async function assertTaken(promised) {
  const answer = await promised;
  assert.equal(answer.status, 200, answer.body);
}

test('kept values (http.md 26.5)', async () => {
  const value = 'x'.repeat(1_000);
  const greedy = (who, most) => fill(most, (n) => keep(who, `user/${who}/${n}`, value));
  const refused = await greedy('mallory', 200);
  const error = assertError(refused, 409);
  assert.equal(error.code, 'too_many_own_kept');
  assert.match(error.message, /limits\.user_share_percent_max/);
  for (const _ of ['now', 'after a restart']) {
    assert.equal((await keep('mallory', 'user/mallory/more', value)).status, 409);
    await assertTaken(keep('bob', 'user/bob/0', value));
    await assertTaken(keptByServer('score', value));
    // Room for one's own is found by clearing.
    await assertTaken(keep('mallory', 'user/mallory/0', null));
    await assertTaken(keep('mallory', 'user/mallory/0', value));
    await halley.killBrain();
    await halley.start();
  }
  // A crowd of users takes what is the users', and nothing of what is the servers'.
  let last;
  for (let n = 0; n < 30 && last?.json?.error.code !== 'too_many_kept'; n += 1) {
    last = await greedy(`one-of-many${n}`, 200);
  }
  assert.equal(assertError(last, 507).code, 'too_many_kept');
  for (let n = 0; n < 5; n += 1) await assertTaken(keptByServer(`score${n}`, value));
  assert.ok(await metric(halley, 'halley_kept_bytes') <= 200_000);
});

test('the history (http.md 16.9)', async () => {
  // A quarter of 64 MB at once: 300 events of 60 KB would be more.
  const event = `${JSON.stringify({ subject: 'flood', data: 'x'.repeat(60_000) })}\n`;
  const publish = (user, lines) => http('POST', `${halley.publicUrl}/v1/me/events?user=${user}`,
    { body: event.repeat(lines), headers: { 'content-type': 'application/x-ndjson' } });
  const answers = [];
  for (let n = 0; n < 30; n += 1) answers.push(await publish('flooder', 10));
  const errors = answers.flatMap(({ body }) => body.trim().split('\n').map((line) =>
    JSON.parse(line).error)).filter(Boolean);
  assert.ok(errors.length > 0, 'all were accepted');
  assert.ok(errors.every(({ code }) => code === 'too_many_requests'), JSON.stringify(errors[0]));
  assert.match(errors[0].message, /history\.bytes/);
  assert.ok((await api(halley, 'GET', '/v1/history')).json.bytes < 40_000_000);
  await assertTaken(publish('bob', 1));
  await assertTaken(api(halley, 'POST', '/v1/events', { subject: 'flood', data: 1 }));
});

test('requests in flight (http.md 16.12)', async () => {
  const inFlight = () => metric(halley, 'halley_edge_requests_in_flight');
  const slow = async (user) => {
    const raw = await Raw.open(halley.publicPort);
    return raw.send(`POST /v1/me/events?user=${user} HTTP/1.1\r\nHost: h\r\n`
      + 'Content-Type: application/json\r\nContent-Length: 500\r\n\r\n{');
  };
  const event = { subject: 'slow', data: 1 };
  const bodies = [];
  try {
    for (let n = 0; n < 2; n += 1) bodies.push(await slow('slow'));
    await until('both wait', async () => await inFlight() >= 2);
    const [refused] = await (await slow('slow')).answers(1);
    const error = assertError(refused, 429);
    assert.equal(error.code, 'too_many_in_flight');
    assert.match(error.message, /limits\.user_share_percent_max/);
    assert.match(refused.headers['retry-after'], /^[1-9]/);
    assert.equal((await own('slow', 'POST', 'events', event)).status, 429);
    await assertTaken(own('bob', 'POST', 'events', event));
    // A crowd takes what is the users', and nothing of what is the servers'.
    for (let n = 0; n < 34; n += 1) bodies.push(await slow(`slow${n >> 1}`));
    await until('all wait', async () => await inFlight() >= 36);
    const full = await own('bob', 'POST', 'events', event);
    assert.equal(assertError(full, 503).code, 'requests_in_flight_max');
    await assertTaken(api(halley, 'POST', '/v1/events', event));
  } finally {
    for (const raw of bodies) raw.close();
  }
  await until('all places are free', async () => await inFlight() <= 1);
  await assertTaken(own('slow', 'POST', 'events', event));
  assert.ok(await metric(halley, 'halley_edge_in_flight_by_user_total') >= 2);
});

test('connections (http.md 16.13)', async () => {
  const small = await start({ settings: {
    HALLEY_EDGE_WORKERS: '1', HALLEY_EDGE_CONNECTIONS_MAX: '20' } });
  try {
    const streams = [];
    for (let n = 0; n < 18; n += 1) streams.push(await sse(small, `u${n}`));
    const refused = await http('GET', `${small.publicUrl}/v1/stream?user=another`);
    assert.equal(assertError(refused, 503).code, 'connections_max');
    await assertTaken(api(small, 'POST', '/v1/events', { subject: 'u7', data: 'hello' }));
    assert.equal((await streams[7].event()).data, 'hello');
  } finally {
    await small.stop();
  }
});

test('what traces remember (http-api.md, "Trace")', async () => {
  const stream = await sse(halley, 'ann');
  const { id } = await publish(halley, 'ann', 'hello');
  assert.equal((await stream.event()).id, id);
  stream.close();
  await until('it is gone', async () => await sessionsOf(halley, 'ann') === 0);
  const traceOfAnn = async () => (await api(halley, 'GET', `/v1/events/${id}/trace?user=ann`)).json;
  const before = await traceOfAnn();
  for (let n = 0; n < 300; n += 1) await poll(halley, 'mallory', { timeout: 0 });
  assert.deepEqual(await traceOfAnn(), before);
});
