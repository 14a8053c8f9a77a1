// Past events (protocol/http.md 19): pages of a subject's events, by the real release, while others
// publish, over a kill of the brain, and at the end of the retention.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { before } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { api, follow, http, publish } from '../lib/client.mjs';
import { assertError } from '../lib/expect.mjs';
import { prepare, scratchFile, start, test } from '../lib/halley.mjs';
import { open, sse } from '../lib/streams.mjs';
import { bearer, jwks, makeKey, mint } from '../lib/token.mjs';
import { until } from '../lib/wait.mjs';
import { endAfter } from '../lib/world.mjs';

const LAUNCHER = process.env.LAUNCHER ?? fileURLToPath(new URL('../../halley', import.meta.url));
const ndjson = { 'content-type': 'application/x-ndjson' };

let halley;
before(async () => { halley = await start(); });
endAfter(() => [halley]);

const target = (subject, query = {}) =>
  `/v1/subjects/${encodeURIComponent(subject)}/events?${new URLSearchParams(query)}`;

async function page(subject, query, on = halley) {
  const answer = await api(on, 'GET', target(subject, query));
  assert.equal(answer.status, 200, answer.body);
  return answer.json;
}

/** All pages from one on; `between` is called before each but the first. */
async function pages(subject, query, on = halley, between = async () => {}) {
  const all = [await page(subject, query, on)];
  while (all.at(-1).next !== null) {
    await between();
    all.push(await page(subject, { ...query, before: all.at(-1).next }, on));
  }
  return all;
}

const events = (all) => all.flatMap((one) => one.events);
const data = (all) => events(all).map((event) => event.data);
const gaps = (all) => all.flatMap((one) => one.gaps);
const down = (from, to) => Array.from({ length: from - to + 1 }, (_, n) => from - n);

async function publishMany(subject, values, on = halley) {
  const lines = values.map((value) => `${JSON.stringify({ subject, data: value })}\n`).join('');
  const answer = await api(on, 'POST', '/v1/events', lines, ndjson);
  assert.equal(answer.status, 200, answer.body);
}

test('19.1: newest first, each event as its subscribers saw it, with a cursor', async () => {
  await follow(halley, ['eve', 'room/7']);
  const stream = await sse(halley, 'eve');
  const seen = [];
  for (const value of [1, { text: 'é "quoted"\n' }, [null, 1.50]]) {
    await publish(halley, 'room/7', value);
    seen.unshift(await stream.event());
  }
  const first = await page('room/7');
  assert.deepEqual(first.events.map(({ cursor, ...event }) => event), seen);
  for (const { cursor } of first.events) assert.match(cursor, /^[\w-]+$/);
  assert.deepEqual([first.gaps, first.next], [[], null]);
  const nothing = await page('nobody ever');
  assert.deepEqual([nothing.events, nothing.gaps, nothing.next], [[], [], null]);
  stream.close();
});

test('19.2 to 19.4: pages to the end, each event once, while others publish', async () => {
  let more = 500;
  await publishMany('busy', down(more, 1).reverse());
  for (const limit of [undefined, 1, 7, 499, 1000]) {
    const query = limit === undefined ? {} : { limit };
    const all = await pages('busy', query, halley, () =>
      (limit === 1 ? undefined : publishMany('busy', [more += 1, more += 1])));
    const newest = data(all)[0];
    assert.deepEqual(data(all), down(newest, 1), `limit ${limit}`);
    const sizes = new Set(all.slice(0, -1).map((one) => one.events.length));
    assert.deepEqual([...sizes], all.length === 1 ? [] : [limit ?? 20]);
    assert.deepEqual(gaps(all), []);
    for (const one of all.slice(1)) assert.equal(one.cursor, undefined);
  }
});

test('19.3: an event\'s cursor as before and as after parts what there is', async () => {
  await publishMany('parted', [1, 2, 3, 4, 5, 6]);
  const { events: [, , third] } = await page('parted');
  assert.equal(third.data, 4);
  assert.deepEqual(data(await pages('parted', { before: third.cursor })), [4, 3, 2, 1]);
  assert.deepEqual(data(await pages('parted', { after: third.cursor })), [6, 5]);
});

test('19.5: a page and a stream from its cursor have each event once, whatever is published',
  async () => {
  await follow(halley, ...Object.keys(open).map((name) => [name, 'joined']));
  await publishMany('joined', down(300, 1).reverse());
  let last = 300;
  let stop = false;
  const publishing = (async () => {
    while (!stop) await publish(halley, 'joined', last += 1);
  })();
  for (const [name, opening] of Object.entries(open)) {
    const first = await page('joined');
    const stream = await opening(halley, name, {}, first.cursor);
    const rest = await pages('joined', { before: first.next, limit: 200 });
    const known = [...first.events.map((event) => event.data), ...data(rest)];
    const upTo = last + 20;
    const live = [];
    while (live.at(-1) === undefined || live.at(-1) < upTo) live.push((await stream.event()).data);
    assert.deepEqual([...live.reverse(), ...known], down(live[0], 1), name);
    // The other way round: what was before a stream that began with nothing.
    const fresh = await sse(halley, name);
    const begin = await fresh.place();
    const next = (await fresh.event()).data;
    const [{ data: newest }] = (await page('joined', { before: begin })).events;
    assert.ok(newest >= next - 1, `${newest} is followed by ${next}`);
    stream.close();
    fresh.close();
  }
  stop = true;
  await publishing;
});

test('a page goes on where it ended after a kill of the brain', async () => {
  const own = await start();
  try {
    await publishMany('kept', down(50, 1).reverse(), own);
    const first = await page('kept', {}, own);
    await own.killBrain();
    await own.start();
    const rest = await pages('kept', { before: first.next }, own);
    assert.deepEqual([...first.events.map((event) => event.data), ...data(rest)], down(50, 1));
    assert.deepEqual(gaps(rest), []);
  } finally {
    await own.stop();
  }
});

test('19.6: what retention took is said at the end, and between two pages', async () => {
  const short = await start({ settings: { HALLEY_HISTORY_BYTES: '1MB',
    HALLEY_LIMITS_HISTORY_SEGMENT_BYTES: '131072' } });
  try {
    const began = Date.now();
    await publishMany('news', down(40, 1).reverse(), short);
    const first = await page('news', {}, short);
    assert.deepEqual([first.gaps, first.events.length], [[], 20]);
    for (let n = 0; n < 60; n += 1) await publish(short, 'large', 'x'.repeat(30_000));
    await until('the oldest are gone', async () =>
      (await api(short, 'GET', '/v1/history')).json.floor_at !== null);
    const rest = await page('news', { before: first.next }, short);
    assert.deepEqual([rest.events, rest.next], [[], null]);
    const [gap, ...others] = rest.gaps;
    assert.deepEqual([gap.from, gap.reason, others], [null, 'too_old', []]);
    assert.ok(gap.to >= began && gap.to <= Date.now(), JSON.stringify(gap));
    const since = await page('news', { after: first.cursor }, short);
    assert.deepEqual([since.events, since.gaps[0]?.reason], [[], 'too_old'],
      'whoever has an older cursor lacks something');
    const large = await pages('large', {}, short);
    assert.ok(large.length > 1, 'a page ends at its bytes');
    assert.ok(large.every((one) => JSON.stringify(one.events).length < 262_144 + 31_000));
    assert.equal(gaps(large).length, 1);
    assert.deepEqual(gaps(large), large.at(-1).gaps);
  } finally {
    await short.stop();
  }
});

test('what is asked for wrongly is refused with a sentence that says what to do', async () => {
  await publish(halley, 'ann', 1);
  const other = await start();
  const { cursor: foreign } = await page('ann', {}, other);
  await other.stop();
  for (const [query, code, says] of [
    [{ limit: '0' }, 'bad_limit', /1 to 1000/], [{ limit: '1001' }, 'bad_limit', /1 to 1000/],
    [{ limit: 'all' }, 'bad_limit', /1 to 1000/], [{ before: 'x' }, 'bad_before', /leave it out/],
    [{ after: 'x' }, 'bad_after', /leave it out/],
    [{ before: foreign }, 'bad_before', /another data directory.*leave it out/],
    [{ after: foreign }, 'bad_after', /another data directory.*leave it out/],
  ]) {
    const error = assertError(await api(halley, 'GET', target('ann', query)), 400);
    assert.equal(error.code, code);
    assert.match(error.message, says);
  }
  const long = assertError(await api(halley, 'GET', target('x'.repeat(256))), 400);
  assert.equal(long.code, 'bad_subject');
  const path = '/v1/subjects/ann/events';
  assert.equal(assertError(await api(halley, 'POST', path, '{}'), 405).code, 'method_not_allowed');
  const elsewhere = assertError(await http('GET', halley.publicUrl + path), 404);
  assert.match(elsewhere.message, /api\.listen/);
});

test('servers need the scope read, users the right history to the subject', async () => {
  const key = makeKey('EdDSA', 'k');
  const own = await prepare();
  Object.assign(own.settings, { HALLEY_AUTH_MODE: 'jwt', HALLEY_AUTH_LEEWAY: '1ms',
    HALLEY_AUTH_KEYS: scratchFile(own, 'jwks.json', jwks(key)) });
  await own.start();
  const create = async (scope) => {
    const options = { cwd: own.folder, env: { ...process.env, ...own.settings }, timeout: 60_000 };
    const args = ['key', 'create', scope.slice(0, 4), '--scope', scope];
    const { stdout } = await promisify(execFile)(LAUNCHER, args, options);
    return { authorization: `Bearer ${stdout.trim()}` };
  };
  const code = ({ status, json }) => `${status} ${json?.error?.code ?? ''}`.trim();
  try {
    await publishMany('room/7', [1, 2, 3], own);
    await publish(own, 'ann', 'for ann');
    const [read, others] = [await create('read'), await create('publish,follow,admin')];
    const server = (headers) => api(own, 'GET', target('room/7'), undefined, headers);
    await until('a key is needed', async () => code(await server({})) === '401 key_missing');
    assert.equal(code(await server(others)), '403 scope_missing');
    assert.deepEqual((await server(read)).json.events.map((event) => event.data), [3, 2, 1]);

    const mine = (subject, halleyClaim, headers = {}) => http('GET',
      `${own.publicUrl}/v1/me/subjects/${encodeURIComponent(subject)}/events`,
      { headers: { ...bearer(mint(key, { sub: 'ann', halley: halleyClaim })), ...headers } });
    const room = await mine('room/7', { history: ['room/*'] });
    assert.deepEqual(room.json.events.map((event) => event.data), [3, 2, 1]);
    assert.equal(code(await mine('room/7', { history: ['room/8'], follow: ['*'] })),
      '403 right_missing');
    assert.equal(code(await mine('room/7', undefined)), '403 right_missing');
    assert.equal(code(await mine('room/7', undefined, { 'halley-rights': '{"history":["*"]}' })),
      '403 right_missing');
    const refused = assertError(await mine('bob', { history: ['room/*'] }), 403);
    assert.match(refused.message, /"history" of its claim "halley"/);
    const self = await mine('ann', undefined);
    assert.deepEqual(self.json.events.map((event) => event.data), ['for ann']);
    const nobody = await http('GET', `${own.publicUrl}/v1/me/subjects/ann/events`);
    assert.equal(code(nobody), '401 token_missing');
    const followed = await mine('room/7', { follow: ['*'] });
    assert.equal(code(followed), '403 right_missing', 'a follow is no right to what was before');
  } finally {
    await own.stop();
  }
});

test('many large pages at once: each is whole, and events go on meanwhile', async () => {
  await publishMany('heavy', Array.from({ length: 200 }, (_, n) => `${n} ${'x'.repeat(2_000)}`));
  await follow(halley, ['listener', 'light']);
  const stream = await sse(halley, 'listener');
  const first = (await page('heavy', { limit: 1000 })).events;
  assert.ok(first.length > 100, 'as many as its bytes allow');
  const users = ['u1', 'u2', 'u3'];
  const asked = Array.from({ length: 300 }, (_, n) => http('GET',
    `${halley.publicUrl}/v1/me/subjects/heavy/events?limit=1000&user=${users[n % 3]}`));
  for (let n = 0; n < 20; n += 1) {
    await publish(halley, 'light', n);
    assert.equal((await stream.event()).data, n);
  }
  for (const answer of await Promise.all(asked)) {
    assert.equal(answer.status, 200, answer.body.slice(0, 300));
    assert.deepEqual(answer.json.events, first);
  }
  stream.close();
});
