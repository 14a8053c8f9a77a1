// No answer to a user depends on who else is online, unless its token gives the right to see that
// (protocol/http.md 22.4, 22.11): each door gives the same answer about a user who is online, one
// who was and has left, and one that Halley has never seen.

import assert from 'node:assert/strict';
import { before } from 'node:test';
import { api, follow, http, sessionsOf } from '../lib/client.mjs';
import { test } from '../lib/halley.mjs';
import { ask, ndjson, sse, ws } from '../lib/streams.mjs';
import { bearer, makeKey, mint } from '../lib/token.mjs';
import { until } from '../lib/wait.mjs';
import { endAfter, startWithTokens } from '../lib/world.mjs';

const key = makeKey('EdDSA', 'a');
let halley;
before(async () => {
  halley = await startWithTokens(key, { HALLEY_PRESENCE_SUBJECTS: '*' });
});
endAfter(() => [halley]);

const token = (sub, rights = {}) => bearer(mint(key, { sub, halley: rights }));
/** All that a token may say, but whom one may see. */
const BLIND = { publish: ['*'], to: ['*'], follow: ['*'], subscribe: ['*'], history: ['*'],
  state: ['*'], presence: ['friend/*'] };

const segment = encodeURIComponent;
const json = { 'content-type': 'application/json' };
const lines = { 'content-type': 'application/x-ndjson' };
const form = { 'content-type': 'application/x-www-form-urlencoded' };
const get = (path) => ['GET', path];
const event = (whom) => ['POST', '/v1/me/events', JSON.stringify({ ...whom, data: 1 }), json];

/** Every door by which a user can name somebody: what it asks there about `id`. */
const DOORS = {
  'follows after': (id) => get(`/v1/me/follows?after=${segment(id)}`),
  'online after': (id) => get(`/v1/me/following/online?after=${segment(id)}`),
  'a room after': (id) => get(`/v1/me/subjects/friend%2Froom/presence?after=${segment(id)}`),
  presence: (id) => get(`/v1/me/presence/${segment(id)}`),
  'who is with them': (id) => get(`/v1/me/subjects/${segment(id)}/presence`),
  'what was before': (id) => get(`/v1/me/subjects/${segment(id)}/events`),
  follow: (id) => ['PUT', `/v1/me/follows/${segment(id)}`],
  'follow by lines': (id) => ['POST', '/v1/me/follows', `{"subject":"${id}"}\n`, lines],
  unfollow: (id) => ['DELETE', `/v1/me/follows/${segment(id)}`],
  'unfollow by lines': (id) => ['DELETE', '/v1/me/follows', `{"subject":"${id}"}\n`, lines],
  'publish about': (id) => event({ subject: id, id: 'x' }),
  'publish about several': (id) => event({ subjects: [id, 'friend/1'], id: 'y' }),
  'publish to': (id) => event({ to: [id], id: 'z' }),
  'publish with keep': (id) => event({ subject: id, id: 'k', keep: true }),
  'a poll': (id) => get(`/v1/poll?timeout=0&subjects=${segment(id)}`),
  'presence in the query': (id) => get(`/v1/me/presence?subject=${segment(id)}`),
  'follow in the query': (id) => ['PUT', `/v1/me/follows?subject=${segment(id)}`],
  'who is with them, in the query': (id) => get(`/v1/me/subjects/presence?subject=${segment(id)}`),
  'a poll by a form': (id) => ['POST', '/v1/poll', `timeout=0&subject=${segment(id)}`, form],
  'a poll about presence': (id) => get(`/v1/poll?timeout=0&presence=${segment(id)}`),
};
/** The same on a WebSocket. */
const OPERATIONS = {
  'op follow': (id) => ({ op: 'follow', subject: id }),
  'op unfollow': (id) => ({ op: 'unfollow', subject: id }),
  'op subscribe': (id) => ({ op: 'subscribe', subject: id }),
  'op subscribe with last': (id) => ({ op: 'subscribe', subject: id, last: 3 }),
  'op unsubscribe': (id) => ({ op: 'unsubscribe', subject: id }),
  'op presence': (id) => ({ op: 'subscribe', presence: id }),
  'op publish': (id) => ({ op: 'publish', subject: id, data: 1, id: 'o' }),
  'op publish to': (id) => ({ op: 'publish', to: [id], data: 1, id: 'p' }),
};

let number = 0;
/** Three strangers, of one length: one online, one that has left, one that never was. */
async function strangers() {
  number += 1;
  const [online, left, unknown] = ['on', 'of', 'un'].map((what) => `x${number}-${what}`);
  const stream = await sse(halley, {}, token(online));
  const other = await sse(halley, {}, token(left));
  other.close();
  await until('one has left', async () => await sessionsOf(halley, left) === 0);
  return { stream, ids: { online, left, unknown } };
}

/** What is compared of an answer: all but the name, and what grows with each event. */
const plain = (id, text) => text.replaceAll(id, 'ID').replaceAll(segment(id), 'ID')
  .replaceAll(/"(cursor|expires|at)":("[^"]*"|\d+)/g, '"$1":0');

function assertSame(door, answers) {
  const [first, ...others] = answers;
  for (const other of others) assert.equal(other, first, door);
}

for (const [which, rights] of [['no rights', {}], ['all rights but to see them', BLIND]]) {
  test(`22.11 with ${which} no door tells who is online`, async () => {
    for (const [door, of] of Object.entries(DOORS)) {
      const { stream, ids } = await strangers();
      const answers = [];
      for (const id of Object.values(ids)) {
        const [method, path, body, headers] = of(id);
        const shown = { ...token(`asks-${id}`, rights), ...headers };
        const answer = await http(method, halley.publicUrl + path, { body, headers: shown });
        const { status } = answer;
        answers.push(plain(id, `${status} ${answer.headers['retry-after']} ${answer.body}`));
      }
      assertSame(door, answers);
      stream.close();
    }
  });

  test(`22.11 with ${which} no operation tells who is online`, async () => {
    for (const [name, of] of Object.entries(OPERATIONS)) {
      const { stream, ids } = await strangers();
      const answers = [];
      for (const id of Object.values(ids)) {
        const socket = await ws(halley, {}, { headers: token(`asks-${id}`, rights) });
        const { ref: _, ...answer } = await ask(socket, of(id));
        answers.push(plain(id, JSON.stringify(answer)));
        socket.close();
      }
      assertSame(name, answers);
      stream.close();
    }
  });
}

test('22.11 nothing about a page depends on those whom one follows and may not see', async () => {
  const shown = token('ann', { presence: ['friend/*'] });
  const followed = ['secret/1', 'friend/1', 'secret/2', 'friend/2', 'secret/3'];
  for (const id of followed) await follow(halley, ['ann', id]);
  const friend = await ndjson(halley, {}, token('friend/2'));
  const pages = async () => {
    const seen = [];
    for (const after of ['', ...followed]) {
      for (const limit of [1, 2, 100]) {
        const query = `limit=${limit}&after=${segment(after)}`;
        const url = `${halley.publicUrl}/v1/me/following/online?${query}`;
        const { status, body } = await http('GET', url, { headers: shown });
        seen.push(`${after} ${limit}: ${status} ${body}`);
      }
    }
    return seen;
  };
  const alone = await pages();
  assert.match(alone[0], /"users":\["friend\/2"\]/);
  const secrets = [];
  for (const id of ['secret/1', 'secret/2', 'secret/3']) {
    secrets.push(await sse(halley, {}, token(id)));
  }
  assert.deepEqual(await pages(), alone, 'three have come whom it may not see');
  for (const stream of [friend, ...secrets]) stream.close();
});

test('22.4 who follows oneself and is online is told by the right, too', async () => {
  await follow(halley, ['fan', 'idol']);
  const fan = await sse(halley, {}, token('fan'));
  const path = `${halley.publicUrl}/v1/me/subjects/idol/presence`;
  const without = await http('GET', path, { headers: token('idol', { presence: ['x'] }) });
  assert.equal(without.status, 403);
  const with_ = await http('GET', path, { headers: token('idol', { presence: ['idol'] }) });
  assert.deepEqual(with_.json.users, ['fan']);
  const ownPath = `${halley.publicUrl}/v1/me/presence/idol`;
  const own = await http('GET', ownPath, { headers: token('idol') });
  assert.deepEqual(own.json, { user: 'idol', online: false }, 'of oneself it is told without');
  fan.close();
});

test('22.11 pages of follows behind one that was unfollowed begin anew', async () => {
  const followed = ['a', 'b', 'c', 'd'];
  for (const id of followed) await follow(halley, ['pat', id]);
  const shown = token('pat', { follow: ['*'] });
  const page = async (after) => (await http('GET',
    `${halley.publicUrl}/v1/me/follows?limit=2&after=${after}`, { headers: shown })).json;
  const first = await page('');
  assert.deepEqual(first, { following: ['a', 'b'], next: 'b' });
  assert.deepEqual(await page('b'), { following: ['c', 'd'], next: null });
  await http('DELETE', `${halley.publicUrl}/v1/me/follows/b`, { headers: shown });
  assert.deepEqual(await page('b'), { following: ['a', 'c'], next: 'c' });
  const servers = await api(halley, 'GET', '/v1/users/pat/following?after=nobody-has-this-id');
  assert.equal(servers.json.error.code, 'bad_after', 'a server is told that there is no such id');
});
