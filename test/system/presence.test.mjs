// protocol/http.md 22: present users, and presence messages: each change once, and nothing false
// when connections, the edge or the brain begin anew.

import assert from 'node:assert/strict';
import { after, before } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { api, follow, http } from '../lib/client.mjs';
import { Comings } from '../lib/comings.mjs';
import { assertError } from '../lib/expect.mjs';
import { kill, prepare, scratchFile, start, test } from '../lib/halley.mjs';
import { metric } from '../lib/metrics.mjs';
import { ask, closeStreams, ndjson, sse, ws } from '../lib/streams.mjs';
import { bearer, jwks, makeKey, mint } from '../lib/token.mjs';
import { until } from '../lib/wait.mjs';

const LEAVE_MS = 2_000;
const settings = { HALLEY_PRESENCE_SUBJECTS: 'room/*, u*, p*',
  HALLEY_PRESENCE_LEAVE_AFTER: `${LEAVE_MS}ms` };
const key = makeKey('EdDSA', 'a');
let halley;
let plain;
before(async () => {
  halley = await start({ settings });
  plain = await start();
});
after(async () => {
  closeStreams();
  await halley?.stop();
  await plain?.stop();
});

const byTransport = { sse, ndjson, ws };
const told = (stream, what) => stream.presence.next(what, 20_000);
const join = (subject, user) => ({ subject, user, state: 'join' });
const leave = (subject, user) => ({ subject, user, state: 'leave' });

const presence = async (subject, query = '') =>
  (await api(halley, 'GET', `/v1/subjects/${encodeURIComponent(subject)}/presence${query}`)).json;

test('22.1 who is in a subject: followers that are online, and who is subscribed', async () => {
  await follow(halley, ['u1', 'room/0'], ['u2', 'room/0'], ['u3', 'room/0']);
  assert.deepEqual(await presence('room/0'), { online: 0, users: [], next: null });
  const streams = [await sse(halley, 'u1'), await sse(halley, 'u1'), await ws(halley, 'u3'),
    await sse(halley, { user: 'u4', subjects: 'room/0' }),
    await sse(halley, { subjects: 'room/0' }), await sse(halley, 'u5')];
  const all = await presence('room/0');
  assert.deepEqual(all, { online: 4, users: ['u1', 'u3', 'u4'], next: null });
  const page = await presence('room/0', '?limit=2');
  assert.deepEqual(page, { online: 4, users: ['u1', 'u3'], next: 'u3' });
  assert.deepEqual((await presence('room/0', '?limit=2&after=u3')).users, ['u4']);
  const mine = await http('GET', `${halley.publicUrl}/v1/me/subjects/room%2F0/presence?user=u9`);
  assert.deepEqual(mine.json, all);
  for (const stream of streams) stream.close();
  await until('all are gone', async () => (await presence('room/0')).online === 0);
});

test('22.3 who of those that a user follows is online', async () => {
  await follow(halley, ['uf', 'u1'], ['uf', 'u2'], ['uf', 'u3']);
  const stream = await sse(halley, 'u2');
  for (const answer of [await api(halley, 'GET', '/v1/users/uf/following/online'),
    await http('GET', `${halley.publicUrl}/v1/me/following/online?user=uf`)]) {
    assert.deepEqual(answer.json, { users: ['u2'], next: null });
  }
  stream.close();
});

test('22.5 a session that asks is told the state and each change, on every transport', async () => {
  const there = await sse(halley, { user: 'u1', subjects: 'room/1' });
  for (const [name, open] of Object.entries(byTransport)) {
    const stream = await open(halley, { user: 'u2', presence: 'room/1' });
    assert.deepEqual(await told(stream, name),
      { subject: 'room/1', online: 1, users: ['u1'] }, name);
    const other = await open(halley, { user: 'u3', subjects: 'room/1' });
    assert.deepEqual(await told(stream, name), join('room/1', 'u3'));
    other.close();
    assert.deepEqual(await told(stream, name), leave('room/1', 'u3'));
    await other.presence.none('who did not ask is told', 10);
    stream.close();
  }
  there.close();
});

test('22.5 a WebSocket asks and ends that as it goes', async () => {
  const stream = await ws(halley, 'u1');
  assert.deepEqual((await ask(stream, { op: 'subscribe', presence: 'room/2' })).ok,
    { added: 1, already: 0 });
  assert.deepEqual(await told(stream), { subject: 'room/2', online: 0, users: [] });
  assert.ok((await ask(stream, { op: 'subscribe', subject: 'room/2' })).ok);
  assert.deepEqual(await told(stream), join('room/2', 'u1'));
  assert.deepEqual((await ask(stream, { op: 'subscribe', presence: 'room/2' })).ok,
    { added: 0, already: 1 });
  assert.deepEqual(await told(stream), { subject: 'room/2', online: 1, users: ['u1'] },
    'who asks again is told the state again');
  assert.deepEqual((await ask(stream, { op: 'unsubscribe', presence: 'room/2' })).ok,
    { removed: 1, absent: 0 });
  assert.ok((await ask(stream, { op: 'unsubscribe', subject: 'room/2' })).ok);
  await stream.presence.none('nobody asks', 2 * LEAVE_MS);
  stream.close();
});

test('22.5 what is refused', async () => {
  const get = (server, query) => http('GET', `${server.publicUrl}/v1/stream?user=u&${query}`);
  assert.equal(assertError(await get(halley, 'presence=live'), 400).code, 'presence_off');
  assert.equal(assertError(await get(plain, 'presence=room/1'), 400).code, 'presence_off');
  for (const query of ['presence=', 'presence=a,,b', `presence=${'x'.repeat(255)}`]) {
    assert.equal(assertError(await get(halley, query), 400).code, 'bad_presence', query);
  }
  const poll = await http('GET', `${halley.publicUrl}/v1/poll?user=u&presence=room/1`);
  assert.match(assertError(poll, 400).message, /a poll doesn't/);
});

test('22.5 a poll that waits for nothing asks whether a stream may be told', async () => {
  const may = (server, query) =>
    http('GET', `${server.publicUrl}/v1/poll?timeout=0&${query}`);
  for (const query of ['user=u&presence=room/1', 'presence=room/1,room/2', 'user=u&presence=*']) {
    const { status, json } = await may(halley, query);
    assert.deepEqual([status, json.events, json.presence], [200, [], undefined], query);
  }
  for (const [server, query] of [[halley, 'user=u&presence=live'],
    [halley, 'presence=room/1,live'], [plain, 'user=u&presence=room/1']]) {
    assert.equal(assertError(await may(server, query), 400).code, 'presence_off', query);
  }
  assert.equal(assertError(await may(halley, 'user=u&presence='), 400).code, 'bad_presence');
  await until('none asks any more', async () =>
    await metric(halley, 'halley_presence_subjects') === 0);
});

test('22.6 of all whom a user follows', async () => {
  await follow(halley, ['u7', 'u8'], ['u7', 'u9'], ['u7', 'other']);
  const streams = [await sse(halley, 'u8'), await sse(halley, 'other')];
  const stream = await sse(halley, { user: 'u7', presence: '*' });
  assert.deepEqual(await told(stream), { subject: '*', online: 1, users: ['u8'] });
  streams.push(await ws(halley, 'u9'));
  assert.deepEqual(await told(stream), join('*', 'u9'));
  streams[0].close();
  assert.deepEqual(await told(stream), leave('*', 'u8'));
  for (const each of [stream, ...streams]) each.close();
});

test('22.8 by the right presence', async () => {
  const closed = await prepare({ settings: { ...settings, HALLEY_AUTH_MODE: 'jwt' } });
  closed.settings.HALLEY_AUTH_KEYS = scratchFile(closed, 'jwks.json', jwks(key));
  await closed.start();
  try {
    const as = (rights) => bearer(mint(key, { sub: 'u1', halley: rights }));
    for (const [rights, who, status] of [
      [{ presence: ['room/*'] }, { presence: 'room/1' }, 200],
      [{ presence: ['room/*'], subscribe: ['room/1'] },
        { presence: 'room/1', subjects: 'room/1' }, 200],
      [{ subscribe: ['*'], follow: ['*'] }, { presence: 'room/1' }, 403],
      [{ presence: ['room/*'] }, { presence: '*' }, 200],
      [{ presence: [] }, { presence: '*' }, 403],
      [{ presence: ['*'] }, { presence: '*' }, 200],
    ]) {
      const stream = await ndjson(closed, who, as(rights));
      assert.equal(stream.status, status, JSON.stringify([rights, who]));
      stream.close();
    }
    const socket = await ws(closed, {}, { headers: as({}) });
    const answer = await ask(socket, { op: 'subscribe', presence: 'room/1' });
    assert.equal(answer.error.code, 'right_missing');
    const said = await ask(socket, { op: 'state', data: 1 });
    assert.equal(said.error.code, 'right_missing');
    const may = await ws(closed, {}, { headers: as({ state: ['u*'] }) });
    assert.deepEqual((await ask(may, { op: 'state', data: 1 })).ok, {});
  } finally {
    await closed.stop();
  }
});

/** What somebody who asked knows, and what was false of it. */
class Known {
  users = new Set();
  states = 0;
  wrong = [];

  constructor(stream, isAway) {
    this.done = this.#follow(stream, isAway);
  }

  async #follow(stream, isAway) {
    for (;;) {
      let what;
      try {
        what = await stream.presence.next('presence', 600_000);
      } catch {
        return;
      }
      const before = new Set(this.users);
      if (what.users) {
        this.users = new Set(what.users);
        this.states += 1;
      } else if (what.state === 'join') this.users.add(what.user);
      else if (what.state === 'leave') this.users.delete(what.user);
      for (const user of before) {
        if (!this.users.has(user) && !isAway(user)) this.wrong.push(user);
      }
    }
  }
}

test('22.9 what begins anew tells nothing false', async () => {
  const users = Array.from({ length: 12 }, (_, n) => `u${100 + n}`);
  const streams = new Map();
  const awaySince = new Map();
  const absences = new Map();
  const awayFor = (user) => performance.now() - awaySince.get(user);
  const come = async (user) => {
    streams.set(user, await sse(halley, { user, subjects: 'room/9' }));
    if (awaySince.has(user)) absences.set(user, awayFor(user));
    awaySince.delete(user);
  };
  const go = (user) => {
    awaySince.set(user, performance.now());
    streams.get(user).close();
    streams.delete(user);
  };
  // A leave is told of who has been away for so long, and of nobody else: what is told just before
  // somebody is back may be heard behind that. A clock may be a little off.
  const isAway = (user) => (awaySince.has(user) ? awayFor(user) : absences.get(user) ?? 0)
    > LEAVE_MS - 100;
  for (const user of users) await come(user);
  const stream = await ws(halley, { presence: 'room/9' });
  const known = new Known(stream, isAway);
  const agrees = (what) => until(what, () => known.users.size === streams.size
    && [...streams.keys()].every((user) => known.users.has(user)), 30_000);
  await agrees('the state');

  go(users[0]);
  await agrees('one has left');
  await halley.killBrain();
  go(users[1]);
  await halley.start();
  await come(users[0]);
  await agrees('a brain that begins tells the state');
  assert.equal(known.states, 2);

  // All connections break, and come back but for one.
  kill(halley.edgePid(), 'SIGKILL');
  await stream.ended();
  await known.done;
  const alive = [...streams.keys()].filter((user) => user !== users[2]);
  absences.clear();
  for (const user of streams.keys()) awaySince.set(user, performance.now());
  streams.clear();
  await until('another edge', () => halley.edgePids().length === 1);
  const again = await until('it listens', () => ws(halley, { presence: 'room/9' })
    .catch(() => false));
  const knows = new Known(again, isAway);
  knows.users = known.users;
  await until('the state', () => knows.states === 1);
  assert.ok(knows.users.has(users[2]), 'nobody has left yet');
  await Promise.all(alive.map(come));
  await until('one has left', () => !knows.users.has(users[2]), 30_000);
  await sleep(LEAVE_MS);
  assert.deepEqual([...knows.users].toSorted(), alive.toSorted());
  assert.deepEqual([...known.wrong, ...knows.wrong], [], 'told to have left, and had not');
  for (const each of [again, ...streams.values()]) each.close();
  assert.equal(await metric(halley, 'halley_presence_owed_total'), 0);
});

test('22.9 a brain that stood still tells nothing of who came back meanwhile', async () => {
  const users = Array.from({ length: 10 }, (_, n) => `u${300 + n}`);
  const come = () => Promise.all(users.map((user) => sse(halley, { user, subjects: 'room/10' })));
  const brain = halley.brainPid();
  let watcher;
  // On a busy machine the leaves may be due before the brain stands still: then once more.
  for (let isEarly = false; !isEarly;) {
    const streams = await come();
    watcher?.close();
    watcher = await ws(halley, { presence: 'room/10' });
    assert.equal((await told(watcher)).online, users.length);
    const since = performance.now();
    for (const stream of streams) stream.close();
    await until('all are gone', async () => (await presence('room/10')).online === 0);
    kill(brain, 'SIGSTOP');
    isEarly = performance.now() - since < LEAVE_MS;
    if (!isEarly) kill(brain, 'SIGCONT');
  }
  let back;
  try {
    back = come();
    await sleep(LEAVE_MS + 500);
  } finally {
    kill(brain, 'SIGCONT');
  }
  const again = await back;
  await watcher.presence.none('nobody has left', 2 * LEAVE_MS);
  assert.equal((await presence('room/10')).online, users.length);
  for (const each of [watcher, ...again]) each.close();
});

/** Waits until what is told of a user says this, and passes over what was told before. */
async function toldOf(stream, user, data) {
  for (;;) {
    const what = await told(stream, `${user}: ${JSON.stringify(data)}`);
    const said = what.user === user && what.state !== 'leave' ? what.data : what.states?.[user];
    if (JSON.stringify(said) === JSON.stringify(data)) return what;
  }
}

test('23 what a session says of itself is seen with it, and outlives a kill', async () => {
  await follow(halley, ['uw', 'us']);
  const watcher = await ws(halley, { user: 'uw', presence: 'room/s,*' });
  const session = await ws(halley, { user: 'us', subjects: 'room/s' });
  assert.deepEqual((await ask(session, { op: 'state', data: { is: 'busy', n: 1.10 } })).ok, {});
  await toldOf(watcher, 'us', { is: 'busy', n: 1.1 });
  const states = { us: { is: 'busy', n: 1.1 } };
  assert.deepEqual(await presence('room/s'), { online: 1, users: ['us'], next: null, states });
  const mine = await http('GET', `${halley.publicUrl}/v1/me/following/online?user=uw`);
  assert.deepEqual(mine.json, { users: ['us'], next: null, states });
  const late = await sse(halley, { user: 'ul', presence: 'room/s' });
  assert.deepEqual((await told(late)).states, states);

  const long = await ask(session, { op: 'state', data: 'x'.repeat(1_023) });
  assert.equal(long.error.code, 'state_too_large');
  assert.ok(await metric(halley, 'halley_session_states_refused_total') > 0);
  const text = 'ü'.repeat(511);
  assert.deepEqual((await ask(session, { op: 'state', data: text })).ok, {});
  await toldOf(watcher, 'us', text);

  await halley.killBrain();
  await halley.start();
  await until('the edge says it again', async () =>
    (await presence('room/s')).states?.us === text, 30_000);
  // What was told before may be there still; then each subject has its state.
  for (let states = 0; states < 2;) {
    const what = await told(watcher);
    if (!what.users) continue;
    assert.deepEqual(what.states, { us: text });
    states += 1;
  }
  const visitor = await ws(halley, { presence: 'room/s' });
  assert.ok((await ask(visitor, { op: 'state', data: 1 })).error);
  const over = await http('PUT', `${halley.publicUrl}/v1/me/state?user=us`,
    { body: '{"data":1}' });
  assert.equal(assertError(over, 409).code, 'no_session');

  assert.deepEqual((await ask(session, { op: 'state', data: null })).ok, {});
  await toldOf(watcher, 'us', null);
  assert.deepEqual((await ask(session, { op: 'state', data: 7 })).ok, {});
  await toldOf(watcher, 'us', 7);
  assert.equal((await api(halley, 'DELETE', '/v1/users/us')).status, 200);
  await until('it is forgotten', async () =>
    await metric(halley, 'halley_session_states') === 0);
  assert.equal((await presence('room/s')).states, undefined);
  for (const each of [watcher, session, late, visitor]) each.close();
});

test('22.9 who comes and goes is told exactly, with a kill in the middle', async () => {
  const all = new Comings(halley, { users: 300, follows: 15, seed: 22, leaveMs: LEAVE_MS });
  await all.follow();
  await all.gather(150, 300);
  assert.equal(await all.settle(30_000), 0, 'all know who is there');
  all.calm();
  await all.comeAndGo(60, 3);
  all.storm();
  await Promise.all([all.comeAndGo(60, 3),
    (async () => { await halley.killBrain(); await halley.start(); })()]);
  assert.equal(await all.settle(60_000), 0, `all know again: ${JSON.stringify(all.seen)}`);
  all.leaveAll();
  assert.deepEqual(all.wrong,
    { leaves: 0, joins: 0, missingLeaves: 0, missingJoins: 0, unknown: 0 }, all.first.join('\n'));
  assert.ok(all.seen.joins > 100 && all.seen.states >= 300, JSON.stringify(all.seen));
  assert.equal(all.seen.broken, 0, 'no connection broke');
});

test('22.5 where nothing is configured nothing is kept', async () => {
  const stream = await sse(plain, { user: 'u', subjects: 'room/1' });
  assert.equal(await metric(plain, 'halley_presence_subjects'), 0);
  stream.close();
});
