// `presence=*` (protocol/http.md 22.6, 22.8): a session gets presence only of followed users whom
// its token lets it see, as the page of them lists them: on every transport, after a kill of the
// brain, and by each new token.

import assert from 'node:assert/strict';
import { before } from 'node:test';
import { follow, http } from '../lib/client.mjs';
import { test } from '../lib/halley.mjs';
import { metric } from '../lib/metrics.mjs';
import { ask, ndjson, sse, ws } from '../lib/streams.mjs';
import { bearer, makeKey, mint } from '../lib/token.mjs';
import { endAfter, startWithTokens } from '../lib/world.mjs';

const LEAVE_MS = 1_000;
const key = makeKey('EdDSA', 'a');
let halley;
before(async () => {
  halley = await startWithTokens(key, { HALLEY_PRESENCE_SUBJECTS: '*',
    HALLEY_PRESENCE_LEAVE_AFTER: `${LEAVE_MS}ms` });
});
endAfter(() => [halley]);

const told = (stream, what) => stream.presence.next(what, 20_000);
const token = (sub, ...presence) => mint(key, { sub, halley: { presence, follow: ['*'] } });
const shown = (...all) => bearer(token(...all));
const online = (user) => sse(halley, {}, shown(user));
const page = async (...all) => (await http('GET',
  `${halley.publicUrl}/v1/me/following/online`, { headers: shown(...all) })).json;

/** Opens a session that asks for all whom its user follows. */
const ASKING = {
  sse: (...all) => sse(halley, { presence: '*' }, shown(...all)),
  ndjson: (...all) => ndjson(halley, { presence: '*' }, shown(...all)),
  ws: (...all) => ws(halley, { presence: '*' }, { headers: shown(...all) }),
  'ws, in band': async (...all) => {
    const stream = await ws(halley, {}, { headers: shown(...all) });
    const answer = await ask(stream, { op: 'subscribe', presence: '*' });
    assert.deepEqual(answer.ok, { added: 1, already: 0 });
    return stream;
  },
};

test('22.6 those alone are told whom the token lets one see, as the page has them', async () => {
  const friends = ['friend/1', 'friend/2'];
  const followed = ['secret/1', ...friends, 'secret/2', 'pal'];
  await follow(halley, ...followed.map((id) => ['ann', id]));
  const there = [await online('secret/1'), await online('friend/1')];
  for (const [name, open] of Object.entries(ASKING)) {
    const stream = await open('ann', 'friend/*', 'pal');
    assert.deepEqual(await told(stream, name),
      { subject: '*', online: 1, users: ['friend/1'] }, name);
    assert.deepEqual((await page('ann', 'friend/*', 'pal')).users, ['friend/1']);
    const secret = await online('secret/2');
    const friend = await online('friend/2');
    assert.deepEqual(await told(stream, name),
      { subject: '*', user: 'friend/2', state: 'join' }, `${name}: nobody else has come`);
    secret.close();
    friend.close();
    assert.deepEqual(await told(stream, name),
      { subject: '*', user: 'friend/2', state: 'leave' }, `${name}: nobody else has left`);
    stream.close();
  }
  assert.ok(await metric(halley, 'halley_edge_presence_narrowed_total') >= 4);
  for (const stream of there) stream.close();
});

test('22.6 what a secret one says of itself is told to nobody', async () => {
  await follow(halley, ['sue', 'secret/5'], ['sue', 'friend/5']);
  const stream = await ASKING.sse('sue', 'friend/*');
  assert.deepEqual(await told(stream), { subject: '*', online: 0, users: [] });
  for (const user of ['secret/5', 'friend/5']) {
    const said = { presence: [], state: ['*'] };
    const other = await ws(halley, {}, { headers: bearer(mint(key, { sub: user, halley: said })) });
    await ask(other, { op: 'state', data: user });
  }
  const seen = [await told(stream)];
  while (!JSON.stringify(seen.at(-1)).includes('"data"')) seen.push(await told(stream));
  assert.ok(seen.every((what) => what.user === 'friend/5'), JSON.stringify(seen));
});

test('22.6 another brain tells no more than the one before it did', async () => {
  await follow(halley, ['bob', 'secret/8'], ['bob', 'friend/8'], ['bob', 'friend/9']);
  const there = [await online('secret/8'), await online('friend/8')];
  const state = { subject: '*', online: 1, users: ['friend/8'] };
  const streams = [];
  for (const open of Object.values(ASKING)) streams.push(await open('bob', 'friend/*'));
  const all = await ASKING.sse('bob', '*');
  for (const stream of streams) assert.deepEqual(await told(stream), state);
  assert.deepEqual((await told(all)).users.toSorted(), ['friend/8', 'secret/8']);
  await halley.killBrain();
  await halley.start();
  for (const stream of streams) assert.deepEqual(await told(stream, 'the state anew'), state);
  assert.deepEqual((await told(all)).users.toSorted(), ['friend/8', 'secret/8']);
  const friend = await online('friend/9');
  for (const stream of [...streams, all]) {
    assert.deepEqual(await told(stream), { subject: '*', user: 'friend/9', state: 'join' });
  }
  for (const stream of [...streams, ...there, all, friend]) stream.close();
});

test('14.7 by a new token a session sees others, and is told the state of these', async () => {
  await follow(halley, ['cid', 'secret/a'], ['cid', 'friend/a'], ['cid', 'friend/b']);
  const there = [await online('secret/a'), await online('friend/a'), await online('friend/b')];
  const stream = await ASKING.ws('cid', 'friend/a');
  const users = async (what) => {
    const state = await told(stream, what);
    assert.equal(state.online, state.users.length);
    return state.users.toSorted();
  };
  const renew = async (...presence) => {
    const answer = await ask(stream, { op: 'token', token: token('cid', ...presence) });
    assert.ok(answer.ok, JSON.stringify(answer));
  };
  assert.deepEqual(await users('at first'), ['friend/a']);
  await renew('friend/*');
  assert.deepEqual(await users('more'), ['friend/a', 'friend/b']);
  await renew('*');
  assert.deepEqual(await users('all'), ['friend/a', 'friend/b', 'secret/a']);
  await renew('friend/b', 'nobody');
  assert.deepEqual(await users('fewer than all'), ['friend/b']);
  await halley.killBrain();
  await halley.start();
  assert.deepEqual(await users('by another brain'), ['friend/b']);
  await renew();
  const { reason, presence } = await stream.lost.next('nobody', 20_000);
  assert.deepEqual([reason, presence], ['right_missing', ['*']]);
  for (const each of [stream, ...there]) each.close();
});

test('22.8 without any right to see somebody it is refused, as the page is', async () => {
  for (const presence of [[], ['']]) {
    const allowed = presence.length > 0;
    const stream = await ndjson(halley, { presence: '*' }, shown('dan', ...presence));
    assert.equal(stream.status, allowed ? 200 : 403, JSON.stringify(presence));
    const socket = await ws(halley, {}, { headers: shown('dan', ...presence) });
    const answer = await ask(socket, { op: 'subscribe', presence: '*' });
    assert.equal(answer.error?.code, allowed ? undefined : 'right_missing');
    stream.close();
    socket.close();
  }
});

test('22.6 ** is those alone whose ids begin with a star', async () => {
  await follow(halley, ['eva', '*x'], ['eva', 'y']);
  const there = [await online('*x'), await online('y')];
  const stream = await ASKING.sse('eva', '**');
  assert.deepEqual(await told(stream), { subject: '*', online: 1, users: ['*x'] });
  for (const each of [stream, ...there]) each.close();
});
