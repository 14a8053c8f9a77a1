// protocol/http.md 20: an event for some users alone reaches all their sessions, live and when they
// come back, and no other.

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

async function to(users, data, more = {}) {
  const answer = await api(halley, 'POST', '/v1/events', { to: users, data, ...more });
  assert.equal(answer.status, 200, answer.body);
  return answer.json;
}

function assertPrivate(event, data) {
  assert.equal(event.private, true);
  assert.deepEqual(event.data, data);
  assert.ok(!('subject' in event) && !('to' in event), 'it names nobody');
  assert.ok(event.id && event.at);
}

const data = (events) => events.map((event) => event.data);
const now = async (user) => (await poll(halley, user, { timeout: 0 })).cursor;

test('20.1, 20.2 all sessions of its users get it, a follower and a stranger nothing', async () => {
  await follow(halley, ['fay', 'bob'], ['fay', 'eve']);
  const streams = [await sse(halley, 'bob'), await ws(halley, 'bob'), await ndjson(halley, 'eve')];
  const others = [await sse(halley, 'fay'), await ws(halley, 'stranger')];
  const { id, sessions } = await to(['eve', 'bob', 'bob', 'nobody'], { text: 'psst' });
  assert.equal(sessions, 3);
  for (const stream of streams) {
    const event = await stream.event();
    assertPrivate(event, { text: 'psst' });
    assert.equal(event.id, id);
  }
  await publish(halley, 'bob', 'to all');
  for (const stream of streams.slice(0, 2)) assert.equal((await stream.event()).data, 'to all');
  const event = await others[0].event();
  assert.deepEqual([event.subject, event.data], ['bob', 'to all'], 'the first thing that fay has');
  await others[1].quiet('anything at all', 100);
  for (const stream of [...streams, ...others]) stream.close();
});

test('20.2 with history and cursor like everything else, on every transport', async () => {
  for (const [name, opening] of Object.entries(open)) {
    const user = `back-by-${name}`;
    await follow(halley, [`fan-of-${name}`, user]);
    const cursors = [await now(user), await now(`fan-of-${name}`), await now('stranger')];
    await to([user], 1);
    await publish(halley, user, 2);
    await to([user, 'eve'], 3);
    const stream = await opening(halley, user, {}, cursors[0]);
    assert.deepEqual(data(await stream.events.take(3, name)).sort(), [1, 2, 3]);
    await to([user], 'live');
    assert.deepEqual(data(await stream.events.take(1)), ['live']);
    stream.close();
    const fan = await poll(halley, `fan-of-${name}`, { cursor: cursors[1], timeout: 0 });
    assert.deepEqual(data(fan.events), [2]);
    const stranger = await poll(halley, 'stranger', { cursor: cursors[2], timeout: 0 });
    assert.deepEqual(stranger.events, []);
  }
});

test('20.2 a thousand users, and each has it once; one more is refused', async () => {
  const users = Array.from({ length: 1000 }, (_, n) => `u${n}`);
  const cursor = await now('u999');
  const stream = await sse(halley, 'u0');
  assert.equal((await to(users, 'wide')).sessions, 1);
  assertPrivate(await stream.event(), 'wide');
  assert.deepEqual(data((await poll(halley, 'u999', { cursor, timeout: 0 })).events), ['wide']);
  const error = assertError(
    await api(halley, 'POST', '/v1/events', { to: [...users, 'x'], data: 1 }), 413);
  assert.equal(error.code, 'to_too_long');
  assert.match(error.message, /at most 1000 users, this one for 1001: publish it several times/);
  stream.close();
});

test('20.3 those for the same users come in order, lines among others of a batch', async () => {
  const cursor = await now('dan');
  const lines = Array.from({ length: 300 }, (_, n) => [
    { to: ['dan', 'ann'], data: n }, { subject: 'elsewhere', data: n },
    { to: ['ann', 'dan'], data: `${n}` },
  ]).flat();
  const answer = await api(halley, 'POST', '/v1/events',
    lines.map((line) => `${JSON.stringify(line)}\n`).join(''),
    { 'content-type': 'application/x-ndjson' });
  assert.equal(answer.body.trim().split('\n').length, 900);
  const stream = await sse(halley, 'dan', {}, cursor);
  const seen = data(await stream.events.take(600));
  assert.deepEqual(seen, lines.filter((line) => line.to).map((line) => line.data));
  stream.close();
});

test('20.4 the same id again is answered as the first time, and there is no second event',
  async () => {
  const stream = await sse(halley, 'gus');
  const first = await to(['gus'], 1, { id: 'once' });
  assert.deepEqual(await to(['gus'], 2, { id: 'once' }), first);
  assert.deepEqual(await to(['eve'], 2, { id: 'once' }), first);
  assertPrivate(await stream.event(), 1);
  await stream.quiet('a second one', 100);
  stream.close();
});

test('20.2 a brain that is killed: live connections and cursors lose none of it', async () => {
  const live = await sse(halley, 'hal');
  const cursor = await now('ida');
  await to(['hal', 'ida'], 'before');
  assertPrivate(await live.event(), 'before');
  await halley.killBrain();
  await halley.start();
  await to(['hal', 'ida'], 'after');
  assertPrivate(await live.event(), 'after');
  const missed = await poll(halley, 'ida', { cursor, timeout: 0 });
  assert.deepEqual(data(missed.events), ['before', 'after']);
  assert.equal(missed.gap, undefined);
  live.close();
});

test('20.5 the trace says for how many it was, and whether for this user', async () => {
  await follow(halley, ['fan', 'joe']);
  const { id } = await to(['joe', 'kim'], 1);
  const trace = async (user) =>
    (await api(halley, 'GET', `/v1/events/${id}/trace?user=${user}`)).json;
  const joe = await trace('joe');
  assert.equal(joe.event.users, 2);
  assert.ok(!('subject' in joe.event));
  assert.equal(joe.followed, true);
  assert.match(joe.verdict, /no session since/);
  const fan = await trace('fan');
  assert.equal(fan.followed, false);
  assert.match(fan.verdict, /published to some users alone, and this user is none of them/);
});

test('20.6 a client by right: to all of the users or to none, by HTTP and WebSocket', async () => {
  const shown = (claims) => bearer(mint(key, { sub: 'ann', ...claims }));
  const say = (claims, body) => http('POST', `${closed.publicUrl}/v1/me/events`, {
    body: JSON.stringify(body),
    headers: { ...shown(claims), 'content-type': 'application/json' },
  });
  const bob = await sse(closed, 'bob', bearer(mint(key, { sub: 'bob' })));
  const some = { halley: { to: ['bob', 'team/*'] } };
  const said = await say(some, { to: ['bob', 'team/x'], data: 1 });
  assert.equal(said.status, 200, said.body);
  assert.deepEqual(Object.keys(said.json), ['id']);
  assertPrivate(await bob.event(), 1);
  for (const [claims, users, what] of [
    [some, ['bob', 'eve'], /publish to eve: no pattern in "to"/],
    [{ halley: { publish: ['*'] } }, ['bob'], /publish to bob/],
    [{}, ['bob'], /nothing in "publish"/]]) {
    const error = assertError(await say(claims, { to: users, data: 2 }), 403);
    assert.equal(error.code, 'right_missing');
    assert.match(error.message, what);
  }
  const socket = await ws(closed, 'ann', { headers: shown(some) });
  const ask = async (operation) => {
    socket.socket.send(JSON.stringify({ op: 'publish', ref: 1, ...operation }));
    for (;;) {
      const answer = await socket.comments.next('an answer');
      if (answer.ref === 1) return answer;
    }
  };
  assert.ok((await ask({ to: ['bob'], data: 3 })).ok.id);
  assertPrivate(await bob.event(), 3);
  assert.equal((await ask({ to: ['eve'], data: 4 })).error.code, 'right_missing');
  assert.equal((await ask({ to: ['bob'], subject: 'bob', data: 4 })).error.code, 'bad_operation');
  await bob.quiet('what was refused', 100);
  for (const stream of [bob, socket]) stream.close();
});
