// protocol/http.md 21: a session gets events about what it is subscribed to, without a follow, for
// as long as it lives, and when it comes back; a visitor needs no user.

import assert from 'node:assert/strict';
import { before } from 'node:test';
import { api, follow, http, publish } from '../lib/client.mjs';
import { assertError, assertEvent } from '../lib/expect.mjs';
import { start, test } from '../lib/halley.mjs';
import { metric } from '../lib/metrics.mjs';
import { ask, ndjson, open, poll, sse, ws } from '../lib/streams.mjs';
import { bearer, makeKey, mint } from '../lib/token.mjs';
import { until } from '../lib/wait.mjs';
import { endAfter, startWithTokens } from '../lib/world.mjs';

const key = makeKey('EdDSA', 'a');
const SESSION_MAX = 5;
let halley;
let closed;
before(async () => {
  halley = await start({ settings: {
    HALLEY_LIMITS_SUBSCRIPTIONS_PER_SESSION_MAX: `${SESSION_MAX}` } });
  closed = await startWithTokens(key, { HALLEY_AUTH_ANONYMOUS: 'live/*, news' });
});
endAfter(() => [halley, closed]);

const data = (events) => events.map((event) => event.data);
const now = async (server, who, more = {}) =>
  (await poll(server, who, { timeout: 0, ...more })).cursor;
const code = (answer) => answer.error?.code;

test('21.1 a session gets events about its subjects, on every transport, and nobody else',
  async () => {
  for (const [name, opening] of Object.entries(open)) {
    const subjects = `room/${name},live/${name}`;
    const stream = await opening(halley, { user: 'ann', subjects });
    const other = await opening(halley, 'ann');
    if (name === 'poll') await until('both polls wait', async () =>
      await metric(halley, 'halley_subscribed_sessions') > 0);
    await publish(halley, `elsewhere/${name}`, 0);
    await publish(halley, `room/${name}`, 1);
    await publish(halley, `live/${name}`, 2);
    assert.deepEqual(data(await stream.events.take(2, name)), [1, 2]);
    await other.quiet('another session of the same user has not subscribed', 100);
    stream.close();
    other.close();
  }
  const following = await api(halley, 'GET', '/v1/users/ann/following');
  assert.deepEqual(following.json.following, [], 'no follow was made');
});

test('21.1 subjects are given in one parameter, or one by one', async () => {
  const url = `${halley.publicUrl}/v1/poll?user=u&timeout=0`;
  for (const query of ['subjects=', 'subjects=a,,b', 'subject=', `subject=${'x'.repeat(256)}`]) {
    assert.equal(assertError(await http('GET', `${url}&${query}`), 400).code, 'bad_subject');
  }
  const error = assertError(await http('GET', `${url}&subject=a%0Ab`), 400);
  assert.equal(error.code, 'bad_subject');
  const stream = await sse(halley, [['user', 'u'], ['subject', 'a,b'], ['subject', 'c'],
    ['subjects', 'c,d e']]);
  for (const subject of ['a,b', 'c', 'd e', 'a', 'b']) await publish(halley, subject, subject);
  assert.deepEqual(data(await stream.events.take(3)), ['a,b', 'c', 'd e']);
  await stream.quiet('parts of a subject', 100);
  stream.close();
});

test('21.2 a session that follows and subscribes gets an event once', async () => {
  await follow(halley, ['both', 'twice']);
  const cursor = await now(halley, 'both');
  const stream = await ndjson(halley, { user: 'both', subjects: 'twice,both' });
  for (const subject of ['twice', 'both']) await publish(halley, subject, subject);
  assert.deepEqual(data(await stream.events.take(2)), ['twice', 'both']);
  await stream.quiet('it comes twice', 100);
  const again = await ndjson(halley, { user: 'both', subjects: 'twice,both' }, {}, cursor);
  assert.deepEqual(data(await again.events.take(2)), ['twice', 'both']);
  await again.quiet('it is replayed twice', 100);
  stream.close();
  again.close();
});

test('21.3 with its cursor a session is sent what it missed of the subjects that it says again',
  async () => {
  for (const [name, opening] of Object.entries(open)) {
    const subjects = `missed/${name}/1,missed/${name}/2`;
    const cursor = await now(halley, { subjects });
    for (let n = 1; n <= 300; n += 1) {
      await publish(halley, `missed/${name}/${n % 3}`, n, { ack: 'memory' });
    }
    const stream = await opening(halley, { subjects }, {}, cursor);
    const expected = Array.from({ length: 300 }, (_, n) => n + 1).filter((n) => n % 3 !== 0);
    const seen = data(await stream.events.take(200, name));
    assert.deepEqual(seen.toSorted((a, b) => a - b), expected, name);
    await publish(halley, `missed/${name}/1`, 'live');
    assert.deepEqual(data(await stream.events.take(1)), ['live']);
    stream.close();
  }
});

test('21.4 a WebSocket subscribes and unsubscribes as it goes', async () => {
  const stream = await ws(halley, 'wes');
  await publish(halley, 'ws/1', 'before');
  assert.deepEqual((await ask(stream, { op: 'subscribe', subject: 'ws/1' })).ok,
    { added: 1, already: 0 });
  assert.deepEqual((await ask(stream, { op: 'subscribe', subject: 'ws/1' })).ok,
    { added: 0, already: 1 });
  await publish(halley, 'ws/1', 1);
  assertEvent(await stream.event(), 'ws/1', 1);
  assert.deepEqual((await ask(stream, { op: 'unsubscribe', subject: 'ws/1' })).ok,
    { removed: 1, absent: 0 });
  assert.deepEqual((await ask(stream, { op: 'unsubscribe', subject: 'ws/1' })).ok,
    { removed: 0, absent: 1 });
  await publish(halley, 'ws/1', 2);
  await stream.quiet('after the end of the subscription', 100);
  assert.equal(code(await ask(stream, { op: 'subscribe', subject: 'a\n' })), 'bad_subject');
  assert.equal(code(await ask(stream, { op: 'subscribe' })), 'bad_operation');
  stream.close();
  const plain = await http('PUT', `${halley.publicUrl}/v1/me/subscriptions/a?user=wes`);
  assert.equal(assertError(plain, 409).code, 'no_session');
});

test('21.5 a session has so many subscriptions at most', async () => {
  const most = Array.from({ length: SESSION_MAX }, (_, n) => `s${n}`);
  const refused = await poll(halley, { user: 'u', subjects: [...most, 'x'].join() });
  assert.equal(assertError(refused, 400).code, 'too_many_subscriptions');
  const stream = await ws(halley, { user: 'u', subjects: most.join() });
  const before = await metric(halley, 'halley_subscriptions_refused_total');
  const answer = await ask(stream, { op: 'subscribe', subject: 'x' });
  assert.equal(code(answer), 'too_many_subscriptions');
  assert.match(answer.error.message, /5 subjects at most .*unsubscribe from some first/);
  assert.equal(await metric(halley, 'halley_subscriptions_refused_total'), before + 1);
  assert.ok((await ask(stream, { op: 'unsubscribe', subject: 's0' })).ok);
  assert.ok((await ask(stream, { op: 'subscribe', subject: 'x' })).ok);
  stream.close();
});

test('21.6 a visitor leaves nothing behind', async () => {
  const stream = await sse(halley, { subjects: 'shop/1' });
  const socket = await ws(halley, {});
  assert.ok((await ask(socket, { op: 'subscribe', subject: 'shop/1' })).ok);
  for (const op of [{ op: 'publish', subject: 'a', data: 1 }, { op: 'follow', subject: 'a' }]) {
    assert.equal(code(await ask(socket, op)), 'user_missing');
  }
  const ids = await metric(halley, 'halley_ids');
  await publish(halley, 'shop/1', 'new');
  assert.equal((await stream.event()).data, 'new');
  assert.equal((await socket.event()).data, 'new');
  // Those of other cases may be given back meanwhile.
  assert.ok(await metric(halley, 'halley_ids') <= ids);
  stream.close();
  socket.close();
  await until('nothing is left', async () => await metric(halley, 'halley_subscriptions') === 0
    && await metric(halley, 'halley_subscribed_sessions') === 0);
  const nobody = await http('GET', `${halley.publicUrl}/v1/stream`);
  assert.equal(assertError(nobody, 400).code, 'user_missing', 'what would it get?');
});

test('21.7 who may subscribe to what', async () => {
  const token = (claims) => ({ headers: bearer(mint(key, claims)) });
  const ann = token({ sub: 'ann', halley: { subscribe: ['room/*'] } });
  const guest = token({ halley: { subscribe: ['room/7'] } });
  const cases = [
    [ann, { subjects: 'room/7' }, 200],
    [ann, { subjects: 'room/7,hall' }, 403],
    [ann, { subjects: 'room/7', user: 'bob' }, 403],
    [token({ sub: 'ann', halley: { follow: ['*'] } }), { subjects: 'room/7' }, 403],
    [guest, { subjects: 'room/7' }, 200],
    [guest, { subjects: 'room/8' }, 403],
    [guest, {}, 401],
    [{}, { subjects: 'live/score,news' }, 200],
    [{}, { subjects: 'room/7' }, 403],
    [{}, {}, 401],
    [{}, { subjects: 'news', user: 'ann' }, 401],
  ];
  for (const [options, who, status] of cases) {
    const answer = await poll(closed, who, { timeout: 0, ...options });
    assert.equal(answer.status, status, `${JSON.stringify(who)} ${answer.body}`);
  }
  const refused = await poll(closed, { subjects: 'room/7,hall' }, { timeout: 0, ...ann });
  assert.equal(refused.json.error.code, 'right_missing');
  assert.match(refused.json.error.message, /no right to subscribe to hall: no pattern in "subs/);
  const socket = await ws(closed, {});
  assert.equal(code(await ask(socket, { op: 'subscribe', subject: 'room/7' })), 'right_missing');
  assert.ok((await ask(socket, { op: 'subscribe', subject: 'live/1' })).ok);
  assert.equal(code(await ask(socket, { op: 'follow', subject: 'live/1' })), 'token_missing');
  const renewed = await ask(socket, { op: 'token',
    token: mint(key, { halley: { subscribe: ['room/*'] } }) });
  assert.ok(renewed.ok.expires);
  assert.ok((await ask(socket, { op: 'subscribe', subject: 'room/7' })).ok);
  assert.equal(code(await ask(socket, { op: 'subscribe', subject: 'live/2' })), 'right_missing');
  assert.equal(code(await ask(socket, { op: 'token', token: mint(key, { sub: 'ann' }) })),
    'other_user');
  socket.close();
});

test('21.8 a kill of the brain changes nothing, whatever was subscribed when', async () => {
  const streams = [await sse(closed, { subjects: 'live/1' }), await ws(closed, {})];
  assert.ok((await ask(streams[1], { op: 'subscribe', subject: 'live/1' })).ok);
  assert.ok((await ask(streams[1], { op: 'subscribe', subject: 'live/2' })).ok);
  assert.ok((await ask(streams[1], { op: 'unsubscribe', subject: 'live/2' })).ok);
  for (let round = 0; round < 2; round += 1) {
    await closed.killBrain();
    await closed.start();
    await publish(closed, 'live/2', `gone ${round}`);
    await publish(closed, 'live/1', `there ${round}`);
    for (const stream of streams) assert.equal((await stream.event()).data, `there ${round}`);
  }
  for (const stream of streams) stream.close();
});

test('11.4: polls leave no subscription behind, whatever they were answered with', async () => {
  const who = { user: 'poller', subjects: 'polled' };
  const before = await metric(halley, 'halley_subscriptions');
  const first = await now(halley, who);
  for (let n = 1; n <= 5; n += 1) {
    await publish(halley, 'polled', n);
    const missed = await poll(halley, who, { cursor: first, timeout: 0 });
    assert.deepEqual(data(missed.events).at(-1), n);
    const waiting = poll(halley, who, { cursor: missed.cursor, timeout: 5 });
    await publish(halley, 'polled', `later ${n}`);
    assert.deepEqual(data((await waiting).events), [`later ${n}`]);
  }
  await until('nothing is left', async () =>
    await metric(halley, 'halley_subscriptions') === before);
});
