// Tokens (protocol/http.md 14), by the real release and tokens that node signed.

import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { after, before } from 'node:test';
import { openBrowser } from '../lib/browser.mjs';
import { api, http, publish, sessionsOf } from '../lib/client.mjs';
import { assertError, assertEvent } from '../lib/expect.mjs';
import { kill, prepare, scratchFile, test } from '../lib/halley.mjs';
import { metric } from '../lib/metrics.mjs';
import { closeStreams, ndjson, poll, sse, ws } from '../lib/streams.mjs';
import { bearer, jwks, makeKey, mint, nowS } from '../lib/token.mjs';
import { until } from '../lib/wait.mjs';

const keys = Object.fromEntries(['RS256', 'ES256', 'EdDSA'].map((alg) => [alg, makeKey(alg, alg)]));
keys.HS256 = makeKey('HS256', 'HS256', 'a secret of thirty-two bytes, or more');

/** A Halley that asks for tokens by these keys. */
async function startJwt(file, settings = {}) {
  const halley = await prepare();
  halley.keysFile = scratchFile(halley, 'jwks.json', file);
  Object.assign(halley.settings, {
    HALLEY_AUTH_MODE: 'jwt', HALLEY_AUTH_KEYS: halley.keysFile, HALLEY_AUTH_LEEWAY: '1ms',
    ...settings,
  });
  return halley.start();
}

let halley;
before(async () => { halley = await startJwt(jwks(...Object.values(keys))); });
after(async () => {
  closeStreams();
  await halley?.stop();
});

const code = (answer) => `${answer.status} ${answer.json?.error?.code}`;
const ask = (path, headers = {}, method = 'GET', body = undefined) =>
  http(method, halley.publicUrl + path, { headers, body });

test('each algorithm opens each kind of stream, for the user that the token names', async () => {
  for (const key of Object.values(keys)) {
    const user = `user of ${key.alg}`;
    const shown = bearer(mint(key, { sub: user }));
    const streams = [await sse(halley, user, shown), await ndjson(halley, user, shown),
      await ws(halley, user, { headers: shown })];
    await publish(halley, user, key.alg);
    for (const stream of streams) assertEvent(await stream.event(), user, key.alg);
    const polled = await poll(halley, user, { timeout: 0, headers: shown });
    assert.equal(polled.status, 200);
  }
  closeStreams();
});

test('where tokens are asked for there is no demo, which lets anybody be anybody', async () => {
  const act = { 'x-halley-demo': 'act', origin: halley.publicUrl };
  for (const path of ['/', '/demo', '/demo/demo.js', '/demo/halley.min.js']) {
    assert.equal(code(await ask(path)), '404 not_found', path);
  }
  assert.equal(code(await ask('/demo/acts/kill-brain', act, 'POST')), '404 not_found');
});

test('key confusion: a public key is no secret, none is no algorithm', async () => {
  const rsa = keys.RS256;
  const pem = rsa.publicKey.export({ type: 'spki', format: 'pem' });
  const confused = makeKey('HS256', 'RS256', pem);
  const unsigned = { alg: 'none', kid: undefined, sign: () => Buffer.alloc(0) };
  for (const [token, refusal] of [
    [mint(confused, { sub: 'ann' }), '401 token_algorithm'],
    [mint(unsigned, { sub: 'ann' }), '401 token_algorithm'],
    [mint(keys.ES256, { sub: 'ann' }, { kid: 'EdDSA' }), '401 token_algorithm'],
    [mint(makeKey('ES256', 'ES256'), { sub: 'ann' }), '401 token_signature'],
    [mint(makeKey('EdDSA', 'unheard-of'), { sub: 'ann' }), '401 token_key_unknown'],
    [mint(keys.EdDSA, { sub: 'ann', exp: nowS() - 3 }), '401 token_expired'],
    [mint(keys.EdDSA, { sub: 'ann', nbf: nowS() + 60 }), '401 token_not_yet'],
    [mint(keys.EdDSA, { sub: '' }), '401 token_subject'],
    [mint(keys.EdDSA, { sub: 'ann', exp: undefined }), '401 token_expiry'],
  ]) {
    const answer = await ask('/v1/stream', bearer(token));
    assert.equal(code(answer), refusal);
    assertError(answer, 401);
    assert.match(answer.headers['www-authenticate'],
      /^Bearer realm="halley", error="invalid_token"/);
  }
});

test('who shows no token, or two, or says to be another', async () => {
  const token = mint(keys.EdDSA, { sub: 'ann' });
  assert.equal(code(await ask('/v1/stream?user=ann')), '401 token_missing');
  assert.equal(code(await ask('/v1/me/follows?user=ann')), '401 token_missing');
  assert.equal(code(await ask(`/v1/poll?token=${token}`, bearer(token))), '400 token_twice');
  assert.equal(code(await ask('/v1/poll?user=bob', bearer(token))), '403 other_user');
  assert.equal(code(await ask('/test/ann', bearer(token))), '403 article_without_tokens');
});

test('rights: publish, follow and presence within the patterns of the claim', async () => {
  const halley_ = { publish: ['room/*', 'ann'], follow: ['room/7'], presence: ['bob'] };
  const shown = bearer(mint(keys.ES256, { sub: 'ann', halley: halley_ }));
  const json = { ...shown, 'content-type': 'application/json' };
  const say = (subject) =>
    ask('/v1/me/events', json, 'POST', JSON.stringify({ subject, data: 1, id: 'mine' + subject }));
  const stream = await sse(halley, 'ann', shown);
  const own = await say('ann');
  assert.equal(own.status, 200);
  assert.deepEqual(own.json, { id: 'me:ann:mineann' });
  assertEvent(await stream.event(), 'ann', 1);
  assert.equal((await say('room/9')).status, 200);
  assert.equal(code(await say('bob')), '403 right_missing');
  const path = (subject) => `/v1/me/follows/${encodeURIComponent(subject)}`;
  assert.deepEqual((await ask(path('room/7'), shown, 'PUT')).json, { added: 1, already: 0 });
  await publish(halley, 'room/7', 'from the room');
  assertEvent(await stream.event(), 'room/7', 'from the room');
  assert.equal(code(await ask(path('room/8'), shown, 'PUT')), '403 right_missing');
  assert.deepEqual((await ask(path('room/7'), shown, 'DELETE')).json, { removed: 1, absent: 0 });
  const presence = (user) => ask(`/v1/me/presence/${user}`, shown);
  assert.deepEqual((await presence('bob')).json, { user: 'bob', online: false });
  assert.deepEqual((await presence('ann')).json, { user: 'ann', online: true });
  assert.equal(code(await presence('eve')), '403 right_missing');
  const without = bearer(mint(keys.ES256, { sub: 'ann' }));
  assert.equal(code(await ask(path('ann2'), without, 'PUT')), '403 right_missing');
  const lied = { ...without, 'halley-rights': '{"follow":["*"]}', 'halley-user': 'bob' };
  assert.equal(code(await ask(path('ann2'), lied, 'PUT')), '403 right_missing');
  stream.close();
});

test('a storm of bad tokens does not reach the brain', async () => {
  const own = await startJwt(jwks(...Object.values(keys)), { HALLEY_EDGE_WORKERS: '1' });
  const bad = bearer(mint(makeKey('ES256', 'ES256'), { sub: 'ann' }));
  let asked = 0; // these requests for the counts reach the brain themselves
  const counted = (name) => {
    asked += 1;
    return metric(own, `halley_edge_${name}_total`);
  };
  const passedOn = () => counted('requests_passed_on');
  // The worker says its counts once a second, all at once. They come behind what it passed on, so
  // the next ones that it says know of all requests before.
  const before = await passedOn().catch(() => 0);
  const first = await until('the next counts', async () => {
    const now = await passedOn();
    return now > before && now;
  });
  const paths = ['/v1/stream', '/v1/poll', '/v1/me/events', '/v1/me/follows'];
  for (let n = 0; n < 200; n += 1) {
    const url = own.publicUrl + paths[n % 4];
    assert.equal(code(await http('GET', url, { headers: bad })), '401 token_signature');
  }
  await until('the edge has counted them', async () => await counted('tokens_unsigned') >= 200);
  const reached = await passedOn() - first;
  assert.ok(reached <= asked, `${reached} requests reached the brain, ${asked} of them for counts`);
  await own.stop();
});

test('a stream ends with its token in every transport, and goes on with a new one', async () => {
  const user = 'short';
  const soon = () => bearer(mint(keys.EdDSA, { sub: user, exp: nowS() + 9 }));
  const shown = soon();
  const streams = [await sse(halley, user, shown), await ndjson(halley, user, shown),
    await ws(halley, user, { headers: shown })];
  await publish(halley, user, 1);
  for (const stream of streams) assertEvent(await stream.event(), user, 1);
  const waiting = poll(halley, user, { timeout: 20, headers: soon() });
  const expired = { reason: 'token_expired' };
  for (const stream of streams) {
    const why = await stream.ended();
    assert.deepEqual(stream.end, expired);
    if (stream.socket) assert.deepEqual(why, { code: 4401, reason: 'token_expired' });
  }
  assert.deepEqual((await waiting).json.end, expired);
  const cursors = [...streams.map((stream) => stream.cursor), (await waiting).cursor];
  await until('no session', async () => await sessionsOf(halley, user) === 0);

  const missed = await publish(halley, user, 2);
  const again = bearer(mint(keys.EdDSA, { sub: user }));
  for (const cursor of cursors) {
    const stream = await sse(halley, user, again, cursor);
    assertEvent(await stream.event(), user, 2);
    stream.close();
  }
  const trace = await api(halley, 'GET', `/v1/events/${missed.id}/trace?user=${user}`);
  assert.equal(trace.status, 200);
});

test('a trace says that the token had expired', async () => {
  const user = 'traced';
  const event = await publish(halley, user, 1);
  const stream = await sse(halley, user, bearer(mint(keys.EdDSA, { sub: user, exp: nowS() + 6 })));
  assert.equal(stream.status, 200);
  await stream.ended();
  const trace = await until('the end is known', async () => {
    const { json } = await api(halley, 'GET', `/v1/events/${event.id}/trace?user=${user}`);
    return json.ended.length > 0 && json;
  });
  assert.equal(trace.ended[0].reason, 'token_expired');
});

test('the JWK Set is rotated while Halley runs, and a broken file changes nothing', async () => {
  const [first, second] = [makeKey('EdDSA', 'first'), makeKey('ES256', 'second')];
  const own = await startJwt(jwks(first));
  const by = (key) => bearer(mint(key, { sub: 'ann' }));
  const polls = async (key) => {
    const answer = await poll(own, 'ann', { timeout: 0, headers: by(key) });
    return answer.status === 200 ? 'good' : code(answer);
  };
  const early = await sse(own, 'ann', by(first));
  assert.equal(await polls(second), '401 token_key_unknown');
  writeFileSync(own.keysFile, jwks(first, second));
  await until('the second key counts', async () => await polls(second) === 'good');
  assert.equal(await polls(first), 'good');

  const errors = () => metric(own, 'halley_token_keys_errors_total');
  const before = await errors();
  writeFileSync(own.keysFile, '{"keys":');
  await until('the broken file has been read', async () => await errors() > before);
  assert.deepEqual([await polls(first), await polls(second)], ['good', 'good']);

  writeFileSync(own.keysFile, jwks(second));
  await until('the first key opens nothing more', async () =>
    await polls(first) === '401 token_key_unknown');
  assert.equal(await polls(second), 'good');
  await publish(own, 'ann', 'still here');
  assertEvent(await early.event('what it opened stays open'), 'ann', 'still here');
  const none = bearer(mint({ ...second, kid: undefined }, { sub: 'ann' }));
  assert.equal((await poll(own, 'ann', { timeout: 0, headers: none })).status, 200,
    'one key alone needs no kid');
  early.close();
  await own.stop();
});

test('iss and aud, as auth.issuer and auth.audience ask', async () => {
  const key = makeKey('RS256', 'a');
  const own = await startJwt(jwks(key),
    { HALLEY_AUTH_ISSUER: 'https://id.example', HALLEY_AUTH_AUDIENCE: 'halley' });
  for (const [claims, expected] of [
    [{ iss: 'https://id.example', aud: ['other', 'halley'] }, 'good'],
    [{ iss: 'https://id.example', aud: 'halley' }, 'good'],
    [{ iss: 'https://id.example' }, '401 token_audience'],
    [{ iss: 'https://id.example/', aud: 'halley' }, '401 token_issuer'],
    [{ aud: 'halley' }, '401 token_issuer'],
  ]) {
    const headers = bearer(mint(key, { sub: 'ann', ...claims }));
    const answer = await poll(own, 'ann', { timeout: 0, headers });
    assert.equal(answer.status === 200 ? 'good' : code(answer), expected);
  }
  await own.stop();
});

test('a brain that is killed leaves the streams and their tokens', async () => {
  const own = await startJwt(jwks(keys.EdDSA));
  const shown = bearer(mint(keys.EdDSA, { sub: 'ann' }));
  const stream = await sse(own, 'ann', shown);
  const soon = await sse(own, 'bob', bearer(mint(keys.EdDSA, { sub: 'bob', exp: nowS() + 6 })));
  await own.killBrain();
  await soon.ended();
  assert.deepEqual(soon.end, { reason: 'token_expired' }, 'no brain is needed for that');
  await own.start();
  await until('the stream is adopted', async () => await sessionsOf(own, 'ann') === 1);
  await publish(own, 'ann', 'again');
  assertEvent(await stream.event(), 'ann', 'again');
  assert.equal((await http('GET', `${own.publicUrl}/v1/poll`)).status, 401);
  stream.close();
  await own.stop();
});

test("a browser's EventSource: its end, a 401 that stops it, a new one that misses nothing",
  async () => {
    const own = await startJwt(jwks(keys.ES256), { HALLEY_CORS_ORIGINS: '*',
      HALLEY_STREAM_RETRY: '200ms' });
    const browser = await openBrowser();
    try {
      const page = await browser.newPage();
      await page.goto(`${own.publicUrl}/healthz`);
      const token = (claims) => mint(keys.ES256, { sub: 'web', ...claims });
      await page.evaluate((path) => {
        window.received = [];
        window.listen = (address) => {
          window.source = new EventSource(address);
          window.source.onmessage = (message) => {
            window.place = message.lastEventId;
            window.received.push(JSON.parse(message.data).data);
          };
          window.source.addEventListener('end', (message) => {
            window.place = message.lastEventId;
            window.why = JSON.parse(message.data).end.reason;
          });
        };
        window.listen(path);
      }, `/v1/stream?token=${token({ exp: nowS() + 8 })}`);
      const state = (name) => page.evaluate((key) => window[key], name);
      await until('the session is there', async () => await sessionsOf(own, 'web') === 1);
      await publish(own, 'web', 1);
      await until('the end', async () => await state('why') === 'token_expired');
      await until('the browser has given up', () =>
        page.evaluate(() => window.source.readyState === EventSource.CLOSED));
      await publish(own, 'web', 2);
      await page.evaluate((fresh) => {
        window.listen(`/v1/stream?token=${fresh}&cursor=${window.place}`);
      }, token({}));
      await until('what was missed', async () => (await state('received')).length === 2);
      assert.deepEqual(await state('received'), [1, 2]);
    } finally {
      await browser.close();
    }
    await own.stop();
  });
