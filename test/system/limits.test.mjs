// http.md 16 and 17 on the real release: requests beyond a limit are answered and counted, and are
// allowed again later; and the address of a client behind a proxy.

import assert from 'node:assert/strict';
import { after } from 'node:test';
import { api, http, publish } from '../lib/client.mjs';
import { assertError } from '../lib/expect.mjs';
import { start, test } from '../lib/halley.mjs';
import { metric } from '../lib/metrics.mjs';
import { Raw } from '../lib/raw.mjs';
import { closeStreams, poll, sse, ws } from '../lib/streams.mjs';
import { sleep, until } from '../lib/wait.mjs';

after(() => closeStreams());

async function withHalley(settings, body) {
  const halley = await start({ settings: { HALLEY_EDGE_WORKERS: '2', ...settings } });
  try {
    await body(halley);
  } finally {
    closeStreams();
    await halley.stop();
  }
}

/** A metric of the edge comes to a value; it is told once a second. */
async function counts(halley, name, least) {
  await until(`${name} is ${least}`,
    async () => await metric(halley, `halley_edge_${name}`) >= least);
}

const ask = (path, more = '') => `GET ${path} HTTP/1.1\r\nHost: h\r\n${more}\r\n`;
const preflight = (more = '') =>
  `OPTIONS /v1/stream HTTP/1.1\r\nHost: h\r\nAccess-Control-Request-Method: GET\r\n${more}\r\n`;

/** The answer on a connection of its own, or on this one. */
async function answer(raw, request, nth = 1) {
  raw.send(request);
  return (await raw.answers(nth))[nth - 1];
}

function assertRefused(refused, status, code) {
  assert.equal(assertError(refused, status).code, code);
  assert.ok(Number(refused.headers['retry-after']) >= 1, JSON.stringify(refused.headers));
}

/**
 * So many ask where one request a second passes, and one at once: of a crowd that a slow machine
 * takes seconds for, one for each of them passes. Gives the refusals, which there are.
 */
async function crowd(askOne) {
  const CROWD = 12;
  const started = Date.now();
  const raws = [];
  for (let n = 0; n < CROWD; n += 1) raws.push(await askOne(n));
  const answers = [];
  for (const raw of raws) answers.push((await raw.answers(1))[0]);
  const seconds = (Date.now() - started) / 1_000;
  raws.forEach((raw) => raw.close());
  const refused = answers.filter(({ status }) => status !== 200 && status !== 204);
  for (const each of refused) assertRefused(each, 429, 'too_many_requests');
  const passed = CROWD - refused.length;
  assert.ok(refused.length > 0 && passed <= 1 + seconds, `${passed} passed in ${seconds} s`);
  return refused;
}

const counted = { HALLEY_LIMITS_EXEMPT: '10.0.0.0/8' };

test('16.1, 16.2 connections of one address, for all workers together: 429, then room again',
  async () => {
  await withHalley({ ...counted, HALLEY_LIMITS_CONNECTIONS_PER_ADDRESS_MAX: '4' },
    async (halley) => {
      const ours = [];
      for (let n = 0; n < 4; n += 1) {
        const raw = await Raw.open(halley.publicPort, '127.0.0.9');
        assert.equal((await answer(raw, preflight())).status, 204);
        ours.push(raw);
      }
      const fifth = await Raw.open(halley.publicPort, '127.0.0.9');
      assertRefused((await fifth.answers(1))[0], 429, 'too_many_connections');
      const other = await Raw.open(halley.publicPort, '127.0.0.10');
      assert.equal((await answer(other, preflight())).status, 204);
      await counts(halley, 'refused_by_address_total', 1);
      ours[0].close();
      await until('a place is free again', async () => {
        const raw = await Raw.open(halley.publicPort, '127.0.0.9');
        const { status } = await answer(raw, preflight());
        raw.close();
        return status === 204;
      });
    });
});

test('16.3 requests of one address and of one user: 429, and as Retry-After says', async () => {
  await withHalley({ ...counted, HALLEY_LIMITS_REQUESTS_PER_ADDRESS_PER_S_MAX: '5',
    HALLEY_LIMITS_REQUESTS_PER_USER_PER_S_MAX: '1',
    HALLEY_LIMITS_REQUESTS_BURST_MS: '1000' }, async (halley) => {
    const raw = await Raw.open(halley.publicPort, '127.0.0.9');
    const ASKED = 40;
    const started = Date.now();
    raw.send(preflight().repeat(ASKED));
    const statuses = (await raw.answers(ASKED)).map(({ status }) => status);
    const seconds = (Date.now() - started) / 1_000;
    const passed = statuses.filter((status) => status === 204).length;
    assert.ok(passed >= 5 && passed <= 5 + 5 * seconds && passed < ASKED, `${statuses}`);
    assert.equal(statuses.filter((status) => status === 429).length, ASKED - passed);
    await counts(halley, 'rate_by_address_total', ASKED - passed);

    const opened = await sse(halley, 'ann');
    let byUser = 0;
    for (const [nth, path] of ['stream?', 'poll?timeout=0&', 'me/follows?'].entries()) {
      const refused = await crowd(async (n) => {
        const other = await Raw.open(halley.publicPort, `127.0.${1 + nth}.${1 + n}`);
        return other.send(ask(`/v1/${path}user=ann`));
      });
      for (const { json } of refused) {
        assert.match(json.error.message, /requests_per_user_per_s_max/);
      }
      byUser += refused.length;
    }
    await counts(halley, 'rate_by_user_total', byUser);
    await publish(halley, 'ann', 'still here');
    assert.equal((await opened.event()).data, 'still here');
    await sleep(1_100);
    await sse(halley, 'ann');
  });
});

test('16.4 memory is short: streams and connections stay outside, who is there stays', async () => {
  await withHalley({ HALLEY_LIMITS_MEMORY_FREE_STREAMS_PERCENT_MIN: '100' }, async (halley) => {
    const raw = await Raw.open(halley.publicPort);
    assertRefused(await answer(raw, ask('/v1/stream?user=ann')), 503, 'memory_low');
    assert.equal((await answer(raw, preflight(), 2)).status, 204);
    await counts(halley, 'memory_low_total', 1);
    await counts(halley, 'memory_available_bytes', 1_000_000);
  });
  await withHalley({ HALLEY_LIMITS_MEMORY_FREE_CONNECTIONS_PERCENT_MIN: '100' }, async (halley) => {
    const raw = await Raw.open(halley.publicPort);
    assertRefused((await raw.answers(1))[0], 503, 'memory_low');
    assert.equal((await http('GET', `${halley.apiUrl}/healthz`)).status, 200);
  });
});

test('16.5 who has asked for nothing makes room', async () => {
  await withHalley({ HALLEY_EDGE_CONNECTIONS_MAX: '20', HALLEY_EDGE_WORKERS: '1' },
    async (halley) => {
      const slow = [];
      for (let n = 0; n < 30; n += 1) {
        const raw = await Raw.open(halley.publicPort);
        raw.send('GET /v1/stream?user=slo');
        slow.push(raw);
      }
      await until('the oldest are gone', () => slow.slice(0, 15).every((raw) => raw.isClosed));
      const streams = [];
      for (let n = 0; n < 8; n += 1) streams.push(await sse(halley, `u${n}`));
      await publish(halley, 'u7', 1);
      assert.equal((await streams[7].event()).data, 1);
      await counts(halley, 'pending_connections_dropped_total', 20);
    });
});

test('16.6, 16.8 slow bodies get 408, one that is too large 413 at once', async () => {
  await withHalley({ HALLEY_LIMITS_PACE_GRACE_MS: '600' }, async (halley) => {
    const raw = await Raw.open(halley.apiPort);
    raw.send('POST /v1/events HTTP/1.1\r\nHost: h\r\nContent-Length: 500\r\n\r\n{');
    const drip = setInterval(() => raw.send(' '), 100);
    try {
      assert.equal(assertError((await raw.answers(1))[0], 408).code, 'body_too_slow');
    } finally {
      clearInterval(drip);
    }
    await counts(halley, 'slow_bodies_total', 1);
    await until('it is in flight no more', async () =>
      await metric(halley, 'halley_edge_requests_in_flight') === 0);
    const large = await Raw.open(halley.apiPort);
    const refused = await answer(large, 'POST /v1/events HTTP/1.1\r\nHost: h\r\n'
      + 'Expect: 100-continue\r\nContent-Length: 1000000\r\n\r\n');
    assert.equal(assertError(refused, 413).code, 'body_too_large');
  });
});

const lines = (subjects) => subjects.map((subject) => `${JSON.stringify({ subject })}\n`).join('');
const own = (halley, user, method, path, body) => http(method,
  `${halley.publicUrl}/v1/me/follows${path}?user=${user}`,
  { body, headers: { 'content-type': 'application/x-ndjson' } });
const refusedFollows = (halley) => metric(halley, 'halley_follows_refused_total');

test('16.10 a user names so many new ids, and what is known always; servers as many as they like',
  async () => {
    await withHalley({ HALLEY_LIMITS_NEW_IDS_PER_USER_MAX: '10' }, async (halley) => {
      const stream = await ws(halley, 'ann');
      const body = lines(Array.from({ length: 12 }, (_, n) => `new ${n}`));
      const many = await own(halley, 'ann', 'POST', '', body);
      assert.equal(many.json.added, 10);
      assert.deepEqual(many.json.errors.map(({ line, error }) => [line, error.code]),
        [[11, 'too_many_new_ids'], [12, 'too_many_new_ids']]);
      // The rest of it can't be had by giving back what was taken.
      assert.equal((await own(halley, 'ann', 'DELETE', '', body)).json.removed, 10);
      assertRefused(await own(halley, 'ann', 'PUT', '/another'), 429, 'too_many_new_ids');
      stream.socket.send(JSON.stringify({ op: 'follow', subject: 'a third', ref: 1 }));
      let error;
      while (!error) ({ error } = await stream.comments.next('a refusal'));
      assert.equal(error.code, 'too_many_new_ids');
      assert.ok(error.retry_after_s >= 1, JSON.stringify(error));
      assert.equal((await own(halley, 'ann', 'PUT', '/new%201')).json.added, 1);
      assert.equal(await refusedFollows(halley), 4);
      const others = Array.from({ length: 50 }, (_, n) =>
        `${JSON.stringify({ user: 'ann', subject: `s${n}` })}\n`).join('');
      const type = { 'content-type': 'application/x-ndjson' };
      assert.equal((await api(halley, 'POST', '/v1/follows', others, type)).json.added, 50);
    });
  });

test('16.11 follows leave room for users that connect', async () => {
  await withHalley({ HALLEY_LIMITS_IDS_MAX: '100' }, async (halley) => {
    await sse(halley, 'ann');
    const body = lines(Array.from({ length: 120 }, (_, n) => `s${n}`));
    await own(halley, 'ann', 'POST', '', lines(['known']));
    const filled = await own(halley, 'ann', 'POST', '', body.split('\n').slice(0, 78).join('\n'));
    assert.equal(filled.json.added, 78);
    const refused = await own(halley, 'ann', 'POST', '', body);
    assert.deepEqual([refused.json.added, refused.json.already, refused.json.errors_total],
      [0, 78, 42]);
    assert.equal(refused.json.errors[0].error.code, 'too_many_ids');
    assert.equal((await own(halley, 'ann', 'PUT', '/one%20more')).status, 507);
    assert.equal(await refusedFollows(halley), 43);
    // Those of servers end ten later.
    const type = { 'content-type': 'application/x-ndjson' };
    const asked = (n) => api(halley, 'POST', '/v1/follows',
      `{"user":"ann","subject":"asked ${n}"}\n`, type);
    for (let n = 0; n < 10; n += 1) assert.equal((await asked(n)).json.added, 1);
    assert.equal((await asked(10)).json.errors[0].error.code, 'too_many_ids');
    for (let n = 0; n < 10; n += 1) await sse(halley, `user ${n}`);
    const raw = await Raw.open(halley.publicPort);
    assertRefused(await answer(raw, ask('/v1/stream?user=late')), 503, 'too_many_users');
    assert.equal(await metric(halley, 'halley_users_refused_total'), 1);
  });
});

/** A header of the PROXY protocol's version 2 for a client at 192.0.2.`n`. */
const header = (n) => Buffer.from([...Buffer.from('\r\n\r\n\0\r\nQUIT\n'), 0x21, 0x11, 0, 12,
  192, 0, 2, n, 10, 0, 0, 1, 1, 1, 0, 80]);

test('17.1 to 17.3 the PROXY protocol: the client\'s address is what counts', async () => {
  await withHalley({ HALLEY_PUBLIC_PROXY_PROTOCOL: 'on', HALLEY_PROXY_TRUSTED: '127.0.0.9',
    HALLEY_LIMITS_REQUESTS_PER_ADDRESS_PER_S_MAX: '1',
    HALLEY_LIMITS_REQUESTS_BURST_MS: '1000' }, async (halley) => {
    const through = async (bytes) => {
      const raw = await Raw.open(halley.publicPort, '127.0.0.9');
      return raw.send(bytes);
    };
    const one = await through(header(1));
    assert.equal((await answer(one, preflight())).status, 204);
    await crowd(async () => (await through(header(1))).send(preflight()));
    const two = await through(header(2));
    assert.equal((await answer(two, preflight())).status, 204);
    const bad = await through(preflight());
    await bad.closed();
    assert.equal(bad.bytes.length, 0, 'closed without a word');
    await counts(halley, 'proxy_errors_total', 1);
    // From elsewhere there is no header, and loopback is exempt.
    await poll(halley, 'ann', { timeout: 0 });
    const direct = await Raw.open(halley.publicPort);
    assert.equal((await answer(direct, header(3))).status, 400);
  });
});

test('17.4 X-Forwarded-For: the rightmost address that isn\'t a trusted proxy\'s', async () => {
  await withHalley({ HALLEY_PROXY_FORWARDED_FOR: 'on',
    HALLEY_PROXY_TRUSTED: '127.0.0.9,10.0.0.0/8', HALLEY_LIMITS_CONNECTIONS_PER_ADDRESS_MAX: '1',
    HALLEY_LIMITS_REQUESTS_PER_ADDRESS_PER_S_MAX: '2',
    HALLEY_LIMITS_REQUESTS_BURST_MS: '1000' }, async (halley) => {
    const from = (names) => `X-Forwarded-For: ${names}\r\n`;
    const proxy = await Raw.open(halley.publicPort, '127.0.0.9');
    // In one write: between two of them hardly a moment passes in which one more would.
    const more = Array(10).fill('192.0.2.1');
    const ofOne = ['192.0.2.1', '198.51.100.1, 192.0.2.1, 10.0.0.7', ...more];
    const all = [...ofOne, '192.0.2.2', '10.0.0.7'];
    const started = Date.now();
    proxy.send(all.map((names) => preflight(from(names))).join(''));
    const statuses = (await proxy.answers(all.length)).map(({ status }) => status);
    const seconds = (Date.now() - started) / 1_000;
    assert.deepEqual(statuses.splice(-2), [204, 204], 'others have their own');
    const passed = statuses.filter((status) => status === 204).length;
    assert.ok(passed >= 2 && passed <= 2 + 2 * seconds && passed < ofOne.length, `${statuses}`);
    assert.equal(statuses.filter((status) => status === 429).length, ofOne.length - passed);
    const stream = await Raw.open(halley.publicPort, '127.0.0.9');
    stream.send(ask('/v1/stream?user=ann', from('192.0.2.3')));
    await stream.text('welcome');
    const request = ask('/v1/stream?user=ann', from('192.0.2.3'));
    const second = await answer(proxy, request, all.length + 1);
    assertRefused(second, 429, 'too_many_connections');
  });
});
