// DELETE /v1/users/U (docs/reference/http-api.md, "Forget a user"), over a kill of the brain and
// until retention has taken the last trace.

import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { before } from 'node:test';
import { api } from '../lib/client.mjs';
import { test } from '../lib/halley.mjs';
import { ask, poll, ws } from '../lib/streams.mjs';
import { bearer, makeKey, mint } from '../lib/token.mjs';
import { until } from '../lib/wait.mjs';
import { endAfter, startWithTokens } from '../lib/world.mjs';

/** What is asked with old cursors is asked before it is over. */
const RETENTION = '45s';
const LAST_TRACE = 'history: the last trace of 1 forgotten user has left it';
/** What was said about bob, to bob, or by bob. */
const TRACES = ['about-bob', 'for-bob-alone', 'kept-of-bob'];

const key = makeKey('EdDSA', 'a');
const tokenOf = (sub) => bearer(mint(key, { sub, halley: { state: ['*'] } }));
let halley;
let admin;
before(async () => {
  halley = await startWithTokens(key, { HALLEY_HISTORY_RETENTION: RETENTION,
    HALLEY_LIMITS_HISTORY_SEGMENT_BYTES: '65536' });
  const scopes = ['--scope', 'publish,follow,read,admin'];
  const made = await halley.command('key', 'create', 'ops', ...scopes);
  assert.equal(made.code, 0, made.stderr);
  admin = bearer(made.stdout.trim());
});
endAfter(() => [halley]);

async function by(method, path, body) {
  const answer = await api(halley, method, path, body, admin);
  assert.equal(answer.status, 200, answer.body);
  return answer.json;
}

const publish = (event) => by('POST', '/v1/events', event);

/** What a user missed since a cursor: `{gap, data}`. */
async function missed(user, cursor) {
  const answer = await poll(halley, user, { cursor, timeout: 0, headers: tokenOf(user) });
  assert.equal(answer.status, 200, answer.body);
  return { gap: answer.gap, data: answer.events.map((event) => event.data) };
}

const place = async (user) =>
  (await poll(halley, user, { timeout: 0, headers: tokenOf(user) })).cursor;

/** Which of these texts are in the history's files. */
function inHistory(texts) {
  const folder = join(halley.settings.HALLEY_DATA_DIR, 'history');
  const bytes = Buffer.concat(readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => readFileSync(join(entry.parentPath ?? entry.path, entry.name))));
  return texts.filter((text) => bytes.includes(text));
}

async function live() {
  const follows = [['eve', 'bob'], ['eve', 'ann'], ['bob', 'ann'], ['bob', 'eve']];
  for (const [user, subject] of follows) {
    await by('POST', '/v1/follows', { user, subject });
  }
  const session = await ws(halley, 'bob', { headers: tokenOf('bob') });
  assert.deepEqual((await ask(session, { op: 'state', data: 'by-bob' })).ok, {});
  const cursors = { eve: await place('eve'), bob: await session.place() };
  await publish({ subject: 'bob', data: 'about-bob' });
  await publish({ to: ['bob'], data: 'for-bob-alone' });
  await publish({ subject: 'bob', data: 'kept-of-bob', keep: true });
  await publish({ to: ['bob', 'eve'], data: 'for-both' });
  await publish({ subject: 'ann', data: 'about-ann' });
  return { session, cursors };
}

test('who is forgotten stays so over a kill -9, until the last trace has left', async () => {
  const { session, cursors } = await live();
  const all = ['about-bob', 'kept-of-bob', 'for-both', 'about-ann'];
  assert.deepEqual((await missed('eve', cursors.eve)).data.sort(), all.sort());
  const online = await by('GET', '/v1/users/eve/following/online');
  assert.deepEqual([online.users, online.states], [['bob'], { bob: 'by-bob' }]);
  assert.equal((await by('GET', '/v1/subjects/bob/events')).kept.data, 'kept-of-bob');
  assert.deepEqual(inHistory(TRACES), TRACES, 'the search finds what is there');

  assert.deepEqual(await by('DELETE', '/v1/users/bob'),
    { user: 'bob', sessions: 1, following: 2, followers: 1 });
  await halley.killBrain();
  await session.ended();
  await halley.start();

  const eve = await missed('eve', cursors.eve);
  assert.deepEqual([eve.gap, eve.data.sort()], [undefined, ['about-ann', 'for-both']]);
  const bob = await missed('bob', cursors.bob);
  assert.deepEqual([bob.gap?.reason, bob.data], ['too_old', []]);
  const past = await by('GET', '/v1/subjects/bob/events');
  assert.deepEqual([past.events, past.kept], [[], undefined]);
  const pages = { 'subjects/ann/followers': ['eve'], 'subjects/bob/followers': [],
    'subjects/eve/followers': [], 'users/bob/following': [], 'users/eve/following': ['ann'] };
  for (const [path, users] of Object.entries(pages)) {
    assert.deepEqual((await by('GET', `/v1/${path}`))[path.split('/').at(-1)], users, path);
  }
  const now = await by('GET', '/v1/users/eve/following/online');
  assert.deepEqual([now.users, now.states], [[], undefined]);
  assert.ok(!halley.log.includes(LAST_TRACE), 'not before it is so');

  await until('the log says that the last trace has left', () => halley.log.includes(LAST_TRACE),
    180_000);
  assert.deepEqual(inHistory(TRACES), []);
  assert.ok(!halley.log.includes('bob'), 'the log names nobody');
});
