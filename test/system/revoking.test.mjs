// A right ends when its ground ends: protocol/http.md 14.7 (another token allows less), 14.11
// (tokens are revoked) and 21.9 (a server ends a subscription), on every transport.

import assert from 'node:assert/strict';
import { request } from 'node:http';
import { before } from 'node:test';
import { api, http, publish, sessionsOf } from '../lib/client.mjs';
import { assertError } from '../lib/expect.mjs';
import { test } from '../lib/halley.mjs';
import { metric } from '../lib/metrics.mjs';
import { ask, ndjson, open, poll, sse, ws } from '../lib/streams.mjs';
import { bearer, makeKey, mint, nowS } from '../lib/token.mjs';
import { sleep, until } from '../lib/wait.mjs';
import { endAfter, startWithTokens } from '../lib/world.mjs';

const key = makeKey('EdDSA', 'a');
const EVERYTHING = { subscribe: ['room/*'], presence: ['*'], state: ['*'] };
let halley;
before(async () => {
  halley = await startWithTokens(key, {
    HALLEY_PRESENCE_SUBJECTS: '*', HALLEY_AUTH_ANONYMOUS: 'live/*',
    HALLEY_LIMITS_REVOCATIONS_BYTES_MAX: '600',
  });
});
endAfter(() => [halley]);

const token = (sub, rights = EVERYTHING, more = {}) =>
  mint(key, { sub, iat: nowS() - 60, halley: rights, ...more });
const code = (answer) => answer.error?.code ?? answer.json?.error?.code;
const data = (events) => events.map((event) => event.data);

const ws1 = (sub, subjects, rights = EVERYTHING, more = {}) =>
  ws(halley, { subjects, ...more }, { headers: bearer(token(sub, rights)) });
const renew = (stream, sub, rights) => ask(stream, { op: 'token', token: token(sub, rights) });

test('14.7 what a new token does not allow ends, and the client is told which', async () => {
  const cases = [
    ['a subject', { ...EVERYTHING, subscribe: ['room/other'] }, { subjects: ['room/7'] }],
    ['presence', { ...EVERYTHING, presence: [] }, { presence: ['room/7', '*'] }],
    ['presence of a room', { ...EVERYTHING, presence: ['nobody'] }, { presence: ['room/7'] }],
    ['its state', { ...EVERYTHING, state: ['somebody'] }, { state: true }],
    ['all of it', {}, { subjects: ['room/7', 'room/other'], presence: ['room/7', '*'],
      state: true }],
  ];
  for (const [what, rights, ended] of cases) {
    const stream = await ws1('ann', 'room/7,room/other', EVERYTHING, { presence: 'room/7,*' });
    await ask(stream, { op: 'state', data: what });
    assert.ok((await renew(stream, 'ann', rights)).ok, what);
    const { reason, ...named } = await stream.lost.next('what has ended');
    assert.equal(reason, 'right_missing');
    for (const list of ['subjects', 'presence']) named[list]?.sort().reverse();
    for (const list of ['subjects', 'presence']) ended[list]?.sort().reverse();
    assert.deepEqual(named, ended, what);
    await publish(halley, 'room/7', 'secret');
    await publish(halley, 'room/other', 'open');
    const seen = ended.subjects?.length === 2 ? []
      : ended.subjects ? ['open'] : ['secret', 'open'];
    assert.deepEqual(data(await stream.events.take(seen.length)), seen, what);
    await stream.quiet(`${what} has ended`, 200);
    const room = await api(halley, 'GET', '/v1/subjects/room%2F7/presence');
    assert.equal(room.json.users?.includes('ann') ?? false, !ended.subjects, what);
    assert.equal((room.json.states ?? {}).ann !== undefined, !ended.state && !ended.subjects, what);
    stream.close();
    await until('it is gone', async () => await sessionsOf(halley, 'ann') === 0);
  }
});

test('14.7 a token that allows as much ends nothing, whatever its patterns', async () => {
  const stream = await ws1('bea', 'room/7');
  assert.ok((await renew(stream, 'bea', { subscribe: ['room/7'] })).ok);
  assert.ok((await renew(stream, 'bea', EVERYTHING)).ok);
  await publish(halley, 'room/7', 1);
  assert.deepEqual(data(await stream.events.take(1)), [1]);
  await stream.lost.none('something has ended', 100);
  stream.close();
});

test('14.7 what was granted just before the new token ends as well', async () => {
  const stream = await ws1('cid', 'room/1');
  const operations = [
    { op: 'subscribe', subject: 'room/2', last: 1, ref: 1 },
    { op: 'subscribe', subject: 'room/3', ref: 2 },
    { op: 'token', token: token('cid', { subscribe: ['room/1'] }), ref: 3 },
  ];
  for (const operation of operations) stream.socket.send(JSON.stringify(operation));
  await until('nothing but room/1 is left', async () => {
    const left = await Promise.all(['room/1', 'room/2', 'room/3'].map(async (subject) =>
      (await publish(halley, subject, 'probe')).sessions));
    return left.join() === '1,0,0';
  });
  stream.close();
});

test('14.7 it is judged by the next brain where there was none', async () => {
  const stream = await ws1('dan', 'room/7,room/8');
  const visitor = await sse(halley, { subjects: 'live/1' });
  await halley.killBrain();
  const renewed = await renew(stream, 'dan', { subscribe: ['room/8'] });
  assert.ok(renewed.ok, 'the edge takes it without a brain');
  await halley.start();
  assert.deepEqual((await stream.lost.next('what has ended')).subjects, ['room/7']);
  await publish(halley, 'room/7', 'secret');
  await publish(halley, 'room/8', 'open');
  await publish(halley, 'live/1', 'for all');
  assert.deepEqual(data(await stream.events.take(1)), ['open']);
  assert.deepEqual(data(await visitor.events.take(1)), ['for all']);
  stream.close();
  visitor.close();
});

test('14.7 a stream or poll that comes back is judged by the token that it shows', async () => {
  const shown = bearer(token('eve'));
  const less = bearer(token('eve', { subscribe: ['room/8'] }));
  const { cursor } = await poll(halley, { subjects: 'room/7' }, { timeout: 0, headers: shown });
  await publish(halley, 'room/7', 'secret');
  for (const [name, accept] of [['sse', 'text/event-stream'], ['ndjson', 'application/x-ndjson']]) {
    const url = `${halley.publicUrl}/v1/stream?subjects=room%2F7&cursor=${cursor}`;
    const answer = await http('GET', url, { headers: { ...less, accept } });
    assert.equal(code(answer), 'right_missing', name);
  }
  const again = await poll(halley, { subjects: 'room/7' }, { cursor, timeout: 0, headers: less });
  assert.equal(code(again), 'right_missing');
  await assert.rejects(ws(halley, { subjects: 'room/7' }, { headers: less }, cursor), /403/);
});

test('21.9 a server ends a subscription, and presence, on every transport', async () => {
  const path = '/v1/users/fay/subscriptions/room%2F7';
  for (const [name, opening] of Object.entries(open)) {
    const headers = bearer(token('fay'));
    const options = name === 'ws' ? { headers } : headers;
    const presence = name === 'poll' ? {} : { presence: 'room/7' };
    if (name === 'poll') {
      const one = poll(halley, { subjects: 'room/7,room/8' }, { timeout: 20, headers });
      await until('the poll waits', async () =>
        (await publish(halley, 'room/none', 0)) && await sessionsOf(halley, 'fay') === 1);
      assert.deepEqual((await api(halley, 'DELETE', path)).json, { ended: 1 }, name);
      const answer = await one;
      assert.deepEqual(answer.events, [], `it is answered at once: ${answer.body}`);
      continue;
    }
    const stream = await opening(halley, { subjects: 'room/7,room/8', ...presence }, options);
    assert.deepEqual((await api(halley, 'DELETE', path)).json, { ended: 2 }, name);
    const ended = await stream.lost.next('what has ended');
    assert.deepEqual(ended, { reason: 'ended_by_server', subjects: ['room/7'],
      presence: ['room/7'] }, name);
    await publish(halley, 'room/7', 'secret');
    await publish(halley, 'room/8', 'open');
    assert.deepEqual(data(await stream.events.take(1)), ['open'], name);
    assert.deepEqual((await api(halley, 'DELETE', path)).json, { ended: 0 }, name);
    stream.close();
    await until('it is gone', async () => await sessionsOf(halley, 'fay') === 0);
  }
  assert.deepEqual((await api(halley, 'DELETE', '/v1/users/nobody/subscriptions/x')).json,
    { ended: 0 });
});

test('21.9 what was ended is not there after the brain was killed, either', async () => {
  const stream = await ws1('gus', 'room/7,room/8');
  assert.deepEqual((await api(halley, 'DELETE', '/v1/users/gus/subscriptions/room%2F7')).json,
    { ended: 1 });
  await stream.lost.next('what has ended');
  await halley.killBrain();
  await halley.start();
  await until('its session is back', async () => await sessionsOf(halley, 'gus') === 1);
  await publish(halley, 'room/7', 'secret');
  await publish(halley, 'room/8', 'open');
  assert.deepEqual(data(await stream.events.take(1)), ['open']);
  stream.close();
});

const revocation = (user) => `/v1/users/${user}/revocation`;

test('14.11 tokens from before are refused, their sessions end, newer ones are good', async () => {
  const old = token('hal');
  const streams = [];
  for (const [name, opening] of [['sse', sse], ['ndjson', ndjson], ['ws', ws]]) {
    const shown = bearer(old);
    const options = name === 'ws' ? { headers: shown } : shown;
    streams.push([name, await opening(halley, { subjects: 'room/7' }, options)]);
  }
  const waits = poll(halley, {}, { timeout: 30, headers: bearer(old) });
  await until('all are there', async () => await sessionsOf(halley, 'hal') === 4);
  const other = await sse(halley, {}, bearer(token('ida')));
  const made = await api(halley, 'PUT', revocation('hal'), {});
  assert.equal(made.status, 200, made.body);
  const { user, issued_before: since, until: end } = made.json;
  assert.deepEqual([user, end], ['hal', null]);
  for (const [name, stream] of streams) {
    const how = await stream.ended();
    assert.deepEqual(stream.end, { reason: 'token_revoked' }, name);
    if (name === 'ws') assert.deepEqual(how, { code: 4401, reason: 'token_revoked' });
  }
  assert.equal((await waits).status, 200);
  await other.quiet('another user', 100);
  const tries = [token('hal'), token('hal', {}, { iat: undefined }),
    token('hal', {}, { iat: since - 1 }), token('hal', {}, { iat: 'now' })];
  for (const one of tries) {
    const answer = await poll(halley, {}, { timeout: 0, headers: bearer(one) });
    assert.equal(assertError(answer, 401).code, 'token_revoked');
  }
  const me = await http('GET', `${halley.publicUrl}/v1/me/follows`, { headers: bearer(old) });
  assert.equal(code(me), 'token_revoked');
  const newer = bearer(token('hal', {}, { iat: since }));
  assert.equal((await poll(halley, {}, { timeout: 0, headers: newer })).status, 200);
  const inBand = await ws(halley, {}, { headers: newer });
  assert.equal(code(await ask(inBand, { op: 'token', token: old })), 'token_revoked');
  inBand.close();
  other.close();
  await until('they are counted', async () =>
    await metric(halley, 'halley_edge_tokens_revoked_total') >= 6);
});

test('14.11 a revocation outlives the brain, the edge and a restart, until it is taken back',
  async () => {
    const shown = bearer(token('jan'));
    const refused = async (when) => {
      const answer = await poll(halley, {}, { timeout: 0, headers: shown });
      assert.equal(code(answer), 'token_revoked', when);
    };
    assert.equal((await api(halley, 'PUT', revocation('jan'))).status, 200);
    await refused('at once');
    await halley.killBrain();
    await refused('without a brain');
    await halley.start();
    await refused('the edge is adopted');
    await halley.terminate();
    await halley.start();
    await refused('after a restart');
    const listed = (await api(halley, 'GET', '/v1/revocations')).json;
    assert.deepEqual(listed.revocations.map((one) => one.user), ['hal', 'jan']);
    assert.deepEqual((await api(halley, 'DELETE', revocation('jan'))).json, { deleted: true });
    await until('it counts again', async () =>
      (await poll(halley, {}, { timeout: 0, headers: shown })).status === 200);
    assert.deepEqual((await api(halley, 'DELETE', revocation('jan'))).json, { deleted: false });
  });

test('14.11 it lapses at its end, and all together have a bound', async () => {
  const shown = bearer(token('kim'));
  await api(halley, 'PUT', revocation('kim'), { until: nowS() + 2 });
  assert.equal(code(await poll(halley, {}, { timeout: 0, headers: shown })), 'token_revoked');
  await until('it has lapsed', async () =>
    (await poll(halley, {}, { timeout: 0, headers: shown })).status === 200);
  let last;
  for (let n = 0; n < 40; n += 1) last = await api(halley, 'PUT', revocation(`user-${n}`));
  assert.equal(assertError(last, 507).code, 'too_many_revocations');
  assert.ok(await metric(halley, 'halley_revocations_refused_total') > 0);
  for (const body of ['x', '[]', '{"issued_before":"now"}', '{"issued_before":-1}', '{"a":1}']) {
    assert.equal(code(await api(halley, 'PUT', revocation('kim'), body)), 'bad_json', body);
  }
});

test('14.11 a body that is still coming ends as well', async () => {
  const url = new URL(`${halley.publicUrl}/v1/me/follows`);
  const headers = { ...bearer(token('lea', { follow: ['*'] })),
    'content-type': 'application/x-ndjson' };
  const sent = request(url, { method: 'POST', headers });
  const answered = new Promise((resolve) => {
    sent.on('response', (answer) => resolve(answer.statusCode));
    sent.on('error', () => resolve('reset'));
  });
  const line = (subject) => `${JSON.stringify({ subject })}\n`;
  sent.write(line('a'));
  await sleep(300);
  await api(halley, 'DELETE', revocation('user-0'));
  assert.equal((await api(halley, 'PUT', revocation('lea'))).status, 200);
  const more = setInterval(() => sent.write(line('b')), 100);
  const status = await answered;
  clearInterval(more);
  sent.destroy();
  assert.equal(status, 401);
});
