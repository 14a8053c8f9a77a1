// protocol/http.md 24: an event about several subjects comes once to whom any of them reaches,
// live, with a cursor and in polls, and is in the past of each.

import assert from 'node:assert/strict';
import { before } from 'node:test';
import { api, follow, http, publish } from '../lib/client.mjs';
import { assertError } from '../lib/expect.mjs';
import { start, test } from '../lib/halley.mjs';
import { ndjson, open, poll, sse, ws } from '../lib/streams.mjs';
import { bearer, makeKey, mint } from '../lib/token.mjs';
import { endAfter, startWithTokens } from '../lib/world.mjs';

const key = makeKey('EdDSA', 'a');
let halley;
let closed;
before(async () => {
  halley = await start();
  closed = await startWithTokens(key);
});
endAfter(() => [halley, closed]);

async function about(subjects, data, more = {}) {
  const answer = await api(halley, 'POST', '/v1/events', { subjects, data, ...more });
  assert.equal(answer.status, 200, answer.body);
  return answer.json;
}

const data = (events) => events.map((event) => event.data);
const now = async (user) => (await poll(halley, user, { timeout: 0 })).cursor;
const past = async (subject) =>
  (await api(halley, 'GET', `/v1/subjects/${encodeURIComponent(subject)}/events`)).json.events;

test('24.1, 24.2 followers, subscribers and the user itself get it, each once', async () => {
  await follow(halley, ['bob', 'ann'], ['bob', 'room/7'], ['eve', 'room/7']);
  const streams = [await sse(halley, 'bob'), await ws(halley, 'bob'), await ndjson(halley, 'eve'),
    await sse(halley, 'ann'), await sse(halley, { user: 'vic', subjects: 'room/7,ann' })];
  const stranger = await sse(halley, 'stranger');
  const { id, sessions } = await about(['ann', 'room/7', 'ann'], { text: 'hi' });
  assert.equal(sessions, 5);
  await about(['room/7', 'ann'], 'next');
  await publish(halley, 'stranger', 'mine');
  for (const stream of streams) {
    const event = await stream.event();
    assert.deepEqual(event.subjects, ['ann', 'room/7']);
    assert.deepEqual(event.data, { text: 'hi' });
    assert.ok(event.id === id && event.at && !('subject' in event));
    assert.equal((await stream.event()).data, 'next', 'nothing twice');
  }
  assert.equal((await stranger.event()).data, 'mine');
  for (const stream of [...streams, stranger]) stream.close();
  await about(['bob', 'bob'], 'alone');
  assert.deepEqual((await past('bob')).map(({ subject }) => subject), ['bob'], '24.1 about one');
});

test('24.2 what was missed comes once, on every transport, and in polls one by one', async () => {
  for (const [name, opening] of Object.entries(open)) {
    const user = `back-by-${name}`;
    const [a, b] = [`a-${name}`, `b-${name}`];
    await follow(halley, [user, a], [user, b]);
    const cursor = await now(user);
    await about([a, b], 1);
    await publish(halley, b, 2);
    await about(['x', b, a], 3);
    const stream = await opening(halley, user, {}, cursor);
    assert.deepEqual(data(await stream.events.take(3, name)), [1, 2, 3]);
    await about([b, a], 'live');
    assert.deepEqual(data(await stream.events.take(1)), ['live']);
    stream.close();
    let place = cursor;
    const seen = [];
    for (let n = 0; n < 4; n += 1) {
      const { events, cursor: next } = await poll(halley, user, { cursor: place, timeout: 0 });
      seen.push(...data(events));
      place = next;
    }
    assert.deepEqual(seen, [1, 2, 3, 'live']);
  }
});

test('24.2 it is in the past of each of its subjects', async () => {
  await publish(halley, 'p1', 1);
  await about(['p1', 'p2'], 2);
  await publish(halley, 'p2', 3);
  assert.deepEqual(data(await past('p1')), [2, 1]);
  assert.deepEqual(data(await past('p2')), [3, 2]);
});

test('24.3 in the order of the answers about each subject, live and missed', async () => {
  const subjects = Array.from({ length: 6 }, (_, n) => `o${n}`);
  await follow(halley, ...subjects.map((subject) => ['olga', subject]));
  const cursor = await now('olga');
  const live = await sse(halley, 'olga');
  for (let n = 0; n < 60; n += 1) {
    if (n % 2) await publish(halley, subjects[n % 6], n);
    else await about([subjects[(n + 1) % 6], subjects[(n * 5 + 2) % 6], subjects[n % 6]], n);
  }
  const all = Array.from({ length: 60 }, (_, n) => n);
  assert.deepEqual(data(await live.events.take(60)), all);
  const missed = await sse(halley, 'olga', {}, cursor);
  assert.deepEqual(data(await missed.events.take(60)), all);
  for (const stream of [live, missed]) stream.close();
});

test('24.1, 24.4 what is refused, and the same id again', async () => {
  const refused = [
    [{ subjects: [] }, 400, 'bad_subjects'], [{ subjects: 'ann' }, 400, 'bad_subjects'],
    [{ subjects: ['ann', ''] }, 400, 'bad_subjects'],
    [{ subjects: ['ann', 7] }, 400, 'bad_subjects'],
    [{ subjects: ['ann'], subject: 'bob' }, 400, 'bad_event'],
    [{ subjects: ['ann'], to: ['bob'] }, 400, 'bad_event'],
    [{ subjects: ['ann'], subjects_: ['bob'] }, 400, 'bad_event'],
    [{ subjects: Array.from({ length: 17 }, (_, n) => `s${n}`) }, 413, 'too_many_subjects']];
  for (const [body, status, code] of refused) {
    const answer = await api(halley, 'POST', '/v1/events', { data: 1, ...body });
    assert.equal(assertError(answer, status).code, code, JSON.stringify(body));
  }
  const first = await about(['i1', 'i2'], 1, { id: 'once' });
  assert.deepEqual(await about(['i1', 'i2'], 2, { id: 'once' }), first);
  assert.deepEqual(data(await past('i2')), [1]);
  assert.deepEqual(data(await past('i1')), [1]);
});

test('24.2 a brain that is killed: live connections and cursors lose none of it', async () => {
  await follow(halley, ['hal', 'k1'], ['hal', 'k2'], ['ida', 'k2']);
  const live = await sse(halley, 'hal');
  const cursor = await now('ida');
  await about(['k1', 'k2'], 'before');
  assert.equal((await live.event()).data, 'before');
  await halley.killBrain();
  await halley.start();
  await about(['k1', 'k2'], 'after');
  assert.equal((await live.event()).data, 'after');
  const missed = await poll(halley, 'ida', { cursor, timeout: 0 });
  assert.deepEqual(data(missed.events), ['before', 'after']);
  assert.equal(missed.gap, undefined);
  live.close();
});

test('24.2 the trace names its subjects', async () => {
  await follow(halley, ['fan', 't2']);
  const { id } = await about(['t1', 't2'], 1);
  const trace = (await api(halley, 'GET', `/v1/events/${id}/trace?user=fan`)).json;
  assert.deepEqual(trace.event.subjects, ['t1', 't2']);
  assert.equal(trace.followed, true);
});

test('24.6 a client by right: about all of the subjects or none, by HTTP and WebSocket',
  async () => {
  const some = bearer(mint(key, { sub: 'ann', halley: { publish: ['room/*', 'ann'] } }));
  const say = (body) => http('POST', `${closed.publicUrl}/v1/me/events`, {
    body: JSON.stringify(body), headers: { ...some, 'content-type': 'application/json' },
  });
  const ann = await sse(closed, 'ann', bearer(mint(key, { sub: 'ann' })));
  const said = await say({ subjects: ['ann', 'room/7'], data: 1 });
  assert.equal(said.status, 200, said.body);
  assert.equal((await ann.event()).data, 1);
  const error = assertError(await say({ subjects: ['ann', 'hall/1'], data: 2 }), 403);
  assert.equal(error.code, 'right_missing');
  assert.match(error.message, /hall\/1/);
  const socket = await ws(closed, 'ann', { headers: some });
  const ask = async (operation) => {
    socket.socket.send(JSON.stringify({ op: 'publish', ref: 1, ...operation }));
    for (;;) {
      const answer = await socket.comments.next('an answer');
      if (answer.ref === 1) return answer;
    }
  };
  assert.ok((await ask({ subjects: ['room/7', 'ann'], data: 3 })).ok.id);
  assert.equal((await ann.event()).data, 3);
  assert.equal((await ask({ subjects: ['x'], data: 4 })).error.code, 'right_missing');
  const both = await ask({ subjects: ['ann'], subject: 'ann', data: 4 });
  assert.equal(both.error.code, 'bad_operation');
  await ann.quiet('what was refused', 100);
  for (const stream of [ann, socket]) stream.close();
});
