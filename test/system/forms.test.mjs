// protocol/http.md 28: ids in the query, and the parameters of streams and polls in a form.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { before } from 'node:test';
import WebSocket from 'ws';
import { api, curl, http, publish } from '../lib/client.mjs';
import { assertError } from '../lib/expect.mjs';
import { test } from '../lib/halley.mjs';
import { bearer, makeKey, mint } from '../lib/token.mjs';
import { until } from '../lib/wait.mjs';
import { endAfter, startWithTokens } from '../lib/world.mjs';

const ID = 'room/7';
const FORM = { 'content-type': 'application/x-www-form-urlencoded' };
const key = makeKey('EdDSA', 'a');
const shown = (sub, halley) => bearer(mint(key, { sub, halley }));
const RIGHTS = { follow: ['*'], subscribe: ['many/*'], presence: ['*'], history: ['*'] };
/** A hundred subjects of a hundred bytes, which no address holds. */
const MANY = Array.from({ length: 100 }, (_, n) => `many/${`${n}`.padStart(95, '0')}`);

let halley;
before(async () => {
  halley = await startWithTokens(key);
});
endAfter(() => [halley]);

const ask = (method, path, headers, body) =>
  http(method, halley.publicUrl + path, { headers, body });
const form = (parameters) => new URLSearchParams(parameters).toString();
const post = (path, parameters, headers = {}) =>
  ask('POST', path, { ...FORM, ...headers }, form(parameters));
const all = (subjects) => subjects.map((subject) => ['subject', subject]);

/** Each resource of users that has an id: its path with the id and without. */
const RESOURCES = {
  follow: ['PUT', '/v1/me/follows/ID', '/v1/me/follows'],
  unfollow: ['DELETE', '/v1/me/follows/ID', '/v1/me/follows'],
  subscribe: ['PUT', '/v1/me/subscriptions/ID', '/v1/me/subscriptions'],
  unsubscribe: ['DELETE', '/v1/me/subscriptions/ID', '/v1/me/subscriptions'],
  presence: ['GET', '/v1/me/presence/ID', '/v1/me/presence'],
  'past events': ['GET', '/v1/me/subjects/ID/events', '/v1/me/subjects/events'],
  'who is there': ['GET', '/v1/me/subjects/ID/presence', '/v1/me/subjects/presence'],
};

for (const [name, [method, path, without]] of Object.entries(RESOURCES)) {
  test(`28.1 ${name}: the same in both forms, with rights and without`, async () => {
    await publish(halley, ID, 1);
    const id = encodeURIComponent(ID);
    for (const rights of [RIGHTS, {}]) {
      const answers = [];
      for (const target of [path.replace('ID', id), `${without}?subject=${id}`]) {
        const headers = shown(`${name} ${answers.length}`, rights);
        const { status, body } = await ask(method, target, headers);
        answers.push([status, body.replaceAll(/"cursor":"[^"]*"/g, '')]);
      }
      assert.deepEqual(answers[0], answers[1]);
      assert.notEqual(answers[0][0], 404);
    }
    assert.equal((await ask(method, `${without}?subject=${id}`)).status, 401);
    const both = `${path.replace('ID', id)}?subject=${id}`;
    const twice = await ask(method, both, shown('ann', RIGHTS));
    assertError(twice, 400, 'duplicate_parameter');
    const lines = { Origin: 'http://localhost:1', 'Access-Control-Request-Method': method };
    assert.match((await ask('OPTIONS', without, lines)).headers.allow, new RegExp(method));
  });
}

test('28.2 a poll by a form: all its subjects, from its cursor on', async () => {
  const token = shown('ann', RIGHTS);
  const first = await post('/v1/poll', [['timeout', '0'], ...all(MANY)], token);
  assert.equal(first.status, 200, first.body);
  for (const n of [0, 99]) await publish(halley, MANY[n], n);
  const { cursor } = first.json;
  const next = await post('/v1/poll', [['cursor', cursor], ...all(MANY)], token);
  assert.deepEqual(next.json.events.map(({ data }) => data), [0, 99]);
});

test('28.2 streams by a form: what was missed, then what is live', async () => {
  const token = shown('ann', RIGHTS);
  const { json: { cursor } } = await post('/v1/poll', [['timeout', '0'], ...all(MANY)], token);
  await publish(halley, MANY[50], 'missed');
  for (const accept of ['text/event-stream', 'application/x-ndjson']) {
    const answer = await fetch(`${halley.publicUrl}/v1/stream`, { method: 'POST',
      headers: { ...token, accept },
      body: new URLSearchParams([['cursor', cursor], ...all(MANY)]) });
    assert.equal(answer.headers.get('content-type'), accept);
    const reader = answer.body.getReader();
    const decoder = new TextDecoder();
    let text = '';
    const reads = async (what) => {
      while (!text.includes(`"data":"${what}"`)) {
        text += decoder.decode((await reader.read()).value);
      }
    };
    await reads('missed');
    await publish(halley, MANY[99], `live ${accept}`);
    await reads(`live ${accept}`);
    await reader.cancel();
  }
});

test('28.2 a form has the rights and limits of an address', async () => {
  const token = shown('ann', RIGHTS);
  for (const path of ['/v1/poll', '/v1/stream']) {
    const refused = async (parameters, status, code, headers = token) =>
      assertError(await post(path, parameters, headers), status, code);
    await refused(all(['many/1', 'other']), 403, 'right_missing');
    await refused(all(['many/1']), 401, 'token_missing', {});
    await refused([['user', 'bob']], 403, 'other_user');
    await refused(all([...MANY, 'many/more']), 400, 'too_many_subscriptions');
    const json = { ...token, 'content-type': 'application/json' };
    assertError(await ask('POST', path, json, '{"subjects":["a"]}'), 415, 'unsupported_media_type');
  }
});

test('28.2 as curl sends it', async () => {
  const { authorization } = shown('ann', RIGHTS);
  const answer = await curl(['-H', `Authorization: ${authorization}`, '-d', 'timeout=0', '-d',
    'subjects=many/1,many/2', `${halley.publicUrl}/v1/poll`]);
  assert.equal(answer.status, 200, answer.body);
  const sessions = await api(halley, 'GET', '/v1/users/ann/sessions');
  assert.deepEqual(sessions.json.sessions, []);
});

const byMessage = () => `${halley.publicUrl.replace('http', 'ws')}/v1/ws?open=message`;

/** Opens a WebSocket whose first message is `parameters`. */
async function opened(parameters, { behind = [], address = '', ...options } = {}) {
  const socket = new WebSocket(byMessage() + address, options);
  const heard = [];
  let closed;
  socket.on('message', (data) => heard.push(JSON.parse(data)));
  socket.on('close', (code, reason) => { closed = [code, `${reason}`]; });
  await once(socket, 'open');
  for (const message of [parameters, ...behind]) socket.send(message);
  return {
    socket,
    heard,
    next: () => until('a message', () => heard.shift()),
    closed: () => until('a close', () => closed),
  };
}

test('28.3 a WebSocket by its first message: all its subjects, from its cursor on', async () => {
  const token = mint(key, { sub: 'ann', halley: RIGHTS });
  for (const perMessageDeflate of [false, { threshold: 0 }]) {
    const first = await opened(form([['token', token], ...all(MANY)]), { perMessageDeflate });
    const { cursor } = await first.next();
    first.socket.close();
    for (const n of [0, 99]) await publish(halley, MANY[n], n);
    const again = await opened(form([['token', token], ['cursor', cursor], ...all(MANY)]),
      { perMessageDeflate });
    assert.deepEqual(await again.next(), {});
    assert.deepEqual([(await again.next()).data, (await again.next()).data], [0, 99]);
    await publish(halley, MANY[50], 'live');
    assert.equal((await again.next()).data, 'live');
    again.socket.close();
  }
});

test('28.3 messages behind the first wait for the session', async () => {
  const token = mint(key, { sub: 'bob', halley: RIGHTS });
  const refs = Array.from({ length: 10 }, (_, n) => n);
  const behind = refs.map((ref) => `{"ref":${ref},"op":"subscribe","subject":"many/${ref}"}`);
  const { heard, next, socket } = await opened(form([['token', token]]), { behind });
  assert.match((await next()).cursor, /./);
  await until('all answers', () => heard.length === refs.length);
  assert.deepEqual(heard.map(({ ref, ok }) => ok && ref), refs);
  socket.close();
});

test('28.3 parameters stand in the address, too, but not in both', async () => {
  const token = mint(key, { sub: 'cid', halley: RIGHTS });
  const both = await opened(form([['token', token]]), { address: '&subject=many/both' });
  await both.next();
  await publish(halley, 'many/both', 1);
  assert.equal((await both.next()).data, 1);
  both.socket.close();
  const twice = await opened(form([['token', token], ['open', 'message']]));
  assert.equal((await twice.next()).error.code, 'duplicate_parameter');
});

test('28.4 a refusal is a message and a close', async () => {
  const subjects = Array.from({ length: 101 }, (_, n) => ['subject', `many/${n}`]);
  for (const [parameters, status, code] of [
    ['', 401, 'token_missing'],
    ['token=x', 401, 'token_malformed'],
    [form([['token', mint(key, { sub: 'dan', halley: {} })], ['subject', 'many/1']]), 403,
      'right_missing'],
    [form([['token', mint(key, { sub: 'dan', halley: RIGHTS })], ...subjects]), 400,
      'too_many_subscriptions'],
    ['user=a b', 400, 'bad_form'],
    [Buffer.from('user=ann'), 400, 'bad_form'],
  ]) {
    const { next, closed } = await opened(parameters);
    const { error } = await next();
    assert.deepEqual([error.status, error.code], [status, code]);
    assert.match(error.message, /\w{3,}/);
    assert.deepEqual(await closed(), [4000 + status, code]);
  }
  const long = await opened('a'.repeat(131_073));
  assert.equal((await long.closed())[0], 1009);
});

test('28.3 before its message it is pending: pings are answered, and it has its time', async () => {
  const socket = new WebSocket(byMessage());
  const closed = once(socket, 'close');
  const said = once(socket, 'message');
  await once(socket, 'open');
  socket.ping('are you there');
  assert.equal(`${(await once(socket, 'pong'))[0]}`, 'are you there');
  const [late] = await said;
  assert.equal(JSON.parse(late).error.code, 'body_too_slow');
  assert.equal((await closed)[0], 4408);
});

test('28.3 without a brain its session waits; while the edge stops it is sent away', async () => {
  const token = mint(key, { sub: 'eve', halley: RIGHTS });
  await halley.killBrain();
  const waits = await opened(form([['token', token]]));
  halley.spawn();
  await halley.ready();
  assert.match((await waits.next()).cursor, /./);
  const late = new WebSocket(byMessage());
  await once(late, 'open');
  const closed = once(late, 'close');
  const said = once(late, 'message');
  const stopped = halley.terminate();
  await until('no client is let in', () => ask('GET', '/readyz').then(() => false, () => true));
  late.send(form([['token', token]]));
  assert.equal(JSON.parse((await said)[0]).error.status, 503);
  assert.equal((await closed)[0], 4503);
  await stopped;
});
