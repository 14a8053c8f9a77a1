// Operations of a WebSocket's client (protocol/http.md 18), and a new token in band (14.7).

import assert from 'node:assert/strict';
import { before } from 'node:test';
import { api, follow, http, publish, sessionsOf } from '../lib/client.mjs';
import { assertEvent } from '../lib/expect.mjs';
import { freeze, kill, start, test } from '../lib/halley.mjs';
import { ask, ws } from '../lib/streams.mjs';
import { bearer, makeKey, mint, nowS } from '../lib/token.mjs';
import { until } from '../lib/wait.mjs';
import { endAfter, startWithTokens } from '../lib/world.mjs';

const key = makeKey('EdDSA', 'a');
const ORIGIN = 'http://localhost:5173';
let open;
let halley;
before(async () => {
  open = await start();
  halley = await startWithTokens(key,
    { HALLEY_AUTH_LEEWAY: '1ms', HALLEY_CORS_ORIGINS: ORIGIN });
});
endAfter(() => [open, halley]);

/** A WebSocket whose answers come by `ask(operation)`. */
async function speaker(server, user, claims = undefined) {
  const headers = claims && bearer(mint(key, { sub: user, ...claims }));
  const stream = await ws(server, user, { headers });
  stream.say = (operation) => stream.socket.send(JSON.stringify(operation));
  stream.ask = (operation) => ask(stream, operation);
  return stream;
}

const code = (answer) => answer.error?.code;
const following = async (server, user) =>
  (await api(server, 'GET', `/v1/users/${user}/following`)).json.following;

test('without tokens a client publishes, follows and unfollows by messages', async () => {
  const ann = await speaker(open, 'ann');
  const bob = await speaker(open, 'bob');
  assert.deepEqual((await bob.ask({ op: 'follow', subject: 'room/7' })).ok,
    { added: 1, already: 0 });
  const said = await ann.ask({ op: 'publish', subject: 'room/7', data: { n: [1.50, 'é'] } });
  assert.deepEqual(Object.keys(said.ok), ['id']);
  const event = await bob.event();
  assertEvent(event, 'room/7', { n: [1.50, 'é'] });
  assert.equal(event.id, said.ok.id);
  assert.deepEqual(await following(open, 'bob'), ['room/7']);

  const own = { op: 'publish', subject: 'room/7', data: null, id: 'once', ack: 'memory' };
  assert.deepEqual((await ann.ask(own)).ok, { id: 'me:ann:once' });
  assert.deepEqual((await ann.ask(own)).ok, { id: 'me:ann:once' }, 'a repetition');
  assertEvent(await bob.event(), 'room/7', null);
  await bob.quiet('a second one', 200);

  assert.deepEqual((await bob.ask({ op: 'unfollow', subject: 'room/7' })).ok,
    { removed: 1, absent: 0 });
  assert.deepEqual(await following(open, 'bob'), []);
  assert.equal(code(await ann.ask({ op: 'publish', subject: 'x', data: 1, ack: 'no' })), 'bad_ack');
  assert.equal(code(await ann.ask({ op: 'publish', subject: 7, data: 1 })), 'bad_subject');
  assert.equal(code(await ann.ask({ op: 'unfollow', subject: 'ann' })), 'self');
  assert.equal(code(await ann.ask({ op: 'dance' })), 'bad_operation');
  assert.equal((await ann.ask({ op: 'token', token: 'any' })).ok.expires, null);
  ann.say('no object');
  assert.equal(code(await ann.comments.next('an error without ref')), 'bad_json');
});

test('an operation is answered as its request of HTTP is (18.3)', async () => {
  const rights = { publish: ['room/*'], to: ['bob'], follow: ['room/*', 'same'] };
  const shown = bearer(mint(key, { sub: 'same', halley: rights }));
  const asJson = { 'content-type': 'application/json' };
  const stream = await speaker(halley, 'same', { halley: rights });
  const pairs = [
    ...[{ subject: 'room/1', data: { a: [1] }, id: 'same' },
      { subjects: ['room/1', 'room/2'], data: null, id: 'several', ack: 'memory' },
      { to: ['bob'], data: 1, id: 'private' }, { subject: 'elsewhere', data: 1 },
      { to: ['eve'], data: 1 }, { subject: 7, data: 1 }, { subject: 'room/1', data: 1, id: [] },
      { subject: 'room/1', data: 1, ack: 'no' }, { to: ['bob'], data: 1, keep: true },
      { subject: 'room/1', data: 'x'.repeat(60_000) }, { subjects: [], data: 1 },
      { subject: 'room/1', data: JSON.parse(`${'['.repeat(300)}${']'.repeat(300)}`) },
    ].map((event) => [{ op: 'publish', ...event }, 'POST', '/v1/me/events', event]),
    ...['same', 'elsewhere', 'room/\n'].flatMap((subject) => {
      const path = `/v1/me/follows/${encodeURIComponent(subject)}`;
      return [['follow', 'PUT'], ['unfollow', 'DELETE']].map(([op, method]) =>
        [{ op, subject }, method, path]);
    }),
    [{ op: 'follow', subject: 'room/ws' }, 'PUT', '/v1/me/follows/room%2Fhttp'],
    [{ op: 'unfollow', subject: 'room/ws' }, 'DELETE', '/v1/me/follows/room%2Fhttp'],
    [{ op: 'unfollow', subject: 'room/ws' }, 'DELETE', '/v1/me/follows/room%2Fhttp'],
  ];
  for (const [operation, method, path, event] of pairs) {
    const { ok, error } = await stream.ask(operation);
    const { status, json, headers } = await http(method, `${halley.publicUrl}${path}`,
      { headers: { ...shown, ...asJson }, body: event && JSON.stringify(event) });
    const what = JSON.stringify(operation).slice(0, 100);
    if (status === 200) {
      if (operation.id || operation.op !== 'publish') assert.deepEqual(ok, json, what);
      else assert.deepEqual(Object.keys(ok), Object.keys(json), what);
    } else {
      const seconds = headers['retry-after'] && { retry_after_s: Number(headers['retry-after']) };
      assert.deepEqual(error, { ...json.error, ...seconds }, what);
    }
  }
});

test('answers come in order, and events between them', async () => {
  const stream = await speaker(open, 'eve');
  const refs = Array.from({ length: 12 }, (_, n) => n);
  for (const ref of refs) stream.say({ op: 'publish', subject: 'eve', data: ref, ref });
  const answers = [];
  while (answers.length < refs.length) {
    const message = await stream.comments.next('an answer');
    if ('ref' in message) answers.push(message);
  }
  assert.deepEqual(answers.map(({ ref }) => ref), refs);
  const events = await stream.events.take(refs.length);
  assert.deepEqual(events.map(({ data }) => data), refs);
  assert.deepEqual(events.map(({ id }) => id), answers.map(({ ok }) => ok.id));
});

test('more than may wait is refused at once, and the rest is done', async () => {
  const stream = await speaker(open, 'hasty');
  const answer = async (what) => {
    for (;;) {
      const message = await stream.comments.next(what);
      if ('ref' in message) return message;
    }
  };
  const PASSED_ON = 1 + 16; // 18.4: the brain has one, operations_waiting_max wait
  const brain = open.brainPid();
  const refused = [];
  await freeze(brain);
  try {
    for (let n = 0; n < 200; n += 1) stream.say({ op: 'follow', subject: `s${n}`, ref: n });
    while (refused.length < 200 - PASSED_ON) refused.push(await answer('a refusal'));
  } finally {
    kill(brain, 'SIGCONT');
  }
  for (const { ref, error } of refused) assert.equal(error?.code, 'operations_waiting_max', ref);
  assert.deepEqual(refused.map(({ ref }) => ref),
    Array.from({ length: 200 - PASSED_ON }, (_, n) => PASSED_ON + n));
  const done = [];
  while (done.length < PASSED_ON) {
    const { ref, ok } = await answer('an answer');
    assert.ok(ok, `${ref} is done`);
    done.push(ref);
  }
  const stored = [];
  for (let page = ''; page !== null;) {
    const { json } = await api(open, 'GET', `/v1/users/hasty/following?limit=1000${page}`);
    stored.push(...json.following);
    page = json.next === null ? null : `&after=${json.next}`;
  }
  assert.deepEqual(stored, done.map((ref) => `s${ref}`));
});

test('a token gives rights to operations, and a new one other rights', async () => {
  const rights = { publish: ['room/*'], follow: ['room/7'] };
  const stream = await speaker(halley, 'ann', { halley: rights });
  assert.ok((await stream.ask({ op: 'publish', subject: 'room/1', data: 1 })).ok);
  assert.equal(code(await stream.ask({ op: 'publish', subject: 'bob', data: 1 })), 'right_missing');
  assert.ok((await stream.ask({ op: 'follow', subject: 'room/7' })).ok);
  assert.equal(code(await stream.ask({ op: 'follow', subject: 'room/8' })), 'right_missing');

  const fewer = mint(key, { sub: 'ann', halley: { follow: ['room/7'] } });
  assert.ok((await stream.ask({ op: 'token', token: fewer })).ok.expires > nowS());
  assert.equal(code(await stream.ask({ op: 'publish', subject: 'room/1', data: 1 })),
    'right_missing');
  assert.ok((await stream.ask({ op: 'unfollow', subject: 'room/7' })).ok);

  const others = mint(key, { sub: 'bob', halley: { publish: ['*'] } });
  assert.equal(code(await stream.ask({ op: 'token', token: others })), 'other_user');
  assert.equal(code(await stream.ask({ op: 'publish', subject: 'bob', data: 1 })), 'right_missing');
  await publish(halley, 'ann', 'still ann');
  assertEvent(await stream.event(), 'ann', 'still ann');
  assert.equal(await sessionsOf(halley, 'bob'), 0);
});

test('a WebSocket outlives its token by a new one, and no longer than that', async () => {
  const [first, second] = [nowS() + 6, nowS() + 16];
  const stream = await speaker(halley, 'lasting', { exp: first });
  const token = mint(key, { sub: 'lasting', exp: second });
  const again = await stream.ask({ op: 'token', token });
  assert.deepEqual(again.ok, { expires: second });
  // A second more than the first token lasts: then a stream without a new one has been ended.
  await until('the first token has expired', () => nowS() >= first + 2);
  await publish(halley, 'lasting', 1);
  assertEvent(await stream.event(), 'lasting', 1);
  assert.deepEqual(await stream.ended(30_000), { code: 4401, reason: 'token_expired' });
  assert.ok(nowS() >= second, 'not before its end');
  assert.deepEqual(stream.end, { reason: 'token_expired' });
});

test('a page of an allowed origin publishes and follows over HTTP', async () => {
  const origin = ORIGIN;
  const shown = { ...bearer(mint(key, { sub: 'page', halley: { follow: ['*'] } })), origin };
  const path = `${halley.publicUrl}/v1/me/follows/news`;
  const preflight = await http('OPTIONS', path, { headers: { origin,
    'access-control-request-method': 'PUT',
    'access-control-request-headers': 'authorization' } });
  assert.equal(preflight.status, 204);
  assert.match(preflight.headers['access-control-allow-methods'], /\bPUT\b/);
  assert.match(preflight.headers['access-control-allow-headers'], /\bauthorization\b/);
  const done = await http('PUT', path, { headers: shown });
  assert.equal(done.status, 200);
  assert.equal(done.headers['access-control-allow-origin'], origin);
  await follow(halley, ['page', 'more']);
  const listed = await http('GET', `${halley.publicUrl}/v1/me/follows`, { headers: shown });
  assert.deepEqual(listed.json.following, ['news', 'more']);
});
