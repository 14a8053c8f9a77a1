// contract.md, "Server side (API listener)": each request of the table.

import assert from 'node:assert/strict';
import { createReadStream } from 'node:fs';
import { after, before } from 'node:test';
import { api, curl, follow, http, publish, sessionsOf, unfollow } from '../lib/client.mjs';
import { assertError, assertEvent } from '../lib/expect.mjs';
import { scratchFile, start, test } from '../lib/halley.mjs';
import { closeStreams, sse } from '../lib/streams.mjs';
import { until } from '../lib/wait.mjs';

let halley;
before(async () => { halley = await start(); });
after(async () => {
  closeStreams();
  await halley?.stop();
});

/** The members that the contract names; more may be added to an answer. */
function assertAnswer(answer, expected) {
  const named = Object.keys(expected).map((name) => [name, answer[name]]);
  assert.deepEqual(Object.fromEntries(named), expected);
}

const json = ['-H', 'Content-Type: application/json'];
const lines = ['-H', 'Content-Type: application/x-ndjson'];
const text = ['-H', 'Content-Type: text/plain'];

test('POST /v1/events: 200 {"id":…,"sessions":N}', async () => {
  const stream = await sse(halley, 'ann');
  const answer = await curl([...json, '-d', '{"subject":"ann","data":{"n":1}}',
    `${halley.apiUrl}/v1/events`]);
  assert.equal(answer.status, 200);
  assert.equal(answer.json.sessions, 1);
  assertEvent(await stream.event(), 'ann', { n: 1 });
  stream.close();
});

test('POST /v1/events with the type that curl -d sends by itself', async () => {
  const answer = await curl(['-d', '{"subject":"nobody","data":"x"}',
    `${halley.apiUrl}/v1/events`]);
  assert.equal(answer.status, 200);
  assert.equal(answer.json.sessions, 0);
});

test('POST /v1/events keeps an id that the publisher chose', async () => {
  const stream = await sse(halley, 'ben');
  const answer = await publish(halley, 'ben', 'x', { id: 'order-17' });
  assert.equal(answer.id, 'order-17');
  assert.equal((await stream.event()).id, 'order-17');
  stream.close();
});

test('in follows, which come from tables, a number is the id of its decimal text', async () => {
  const stream = await sse(halley, '123');
  const answer = await api(halley, 'POST', '/v1/follows', '{"user":123,"subject":45}\n',
    { 'content-type': 'application/x-ndjson' });
  assertAnswer(answer.json, { added: 1, already: 0, errors: [] });
  await publish(halley, '45', 1);
  assertEvent(await stream.event(), '45', 1);
  stream.close();
});

const badEvents = {
  'no JSON': '{"subject":', 'no object': '[1]', 'no subject': '{"data":1}',
  'no data': '{"subject":"a"}', 'an empty subject': '{"subject":"","data":1}',
  'a subject of 256 bytes': JSON.stringify({ subject: 'x'.repeat(256), data: 1 }),
  'a subject that is no text': '{"subject":7,"data":1}',
  'an id that is no string': '{"subject":"a","data":1,"id":[]}', 'nothing': '',
};
for (const [what, body] of Object.entries(badEvents)) {
  test(`POST /v1/events with ${what}: 400`, async () => {
    assertError(await api(halley, 'POST', '/v1/events', body), 400);
  });
}

test('an event whose data is over the limit: 413, the limit is named', async () => {
  const body = { subject: 'a', data: 'x'.repeat(70_000) };
  assert.match(assertError(await api(halley, 'POST', '/v1/events', body), 413).message, /\d{4,}/);
});

test('POST /v1/events, NDJSON: one result a line, a bad line spoils no other', async () => {
  const stream = await sse(halley, 'cat');
  const body = '{"subject":"cat","data":1}\nnonsense\n{"subject":"","data":2}\n'
    + '{"subject":"cat","data":3}\n';
  const answer = await curl([...lines, '--data-binary', body, `${halley.apiUrl}/v1/events`]);
  assert.equal(answer.status, 200);
  const results = answer.body.trim().split('\n').map((line) => JSON.parse(line));
  assert.equal(results.length, 4);
  assert.equal(results[0].sessions, 1);
  assert.equal(typeof results[1].error.code, 'string');
  assert.equal(typeof results[2].error.message, 'string');
  assert.equal(results[3].sessions, 1);
  assert.deepEqual((await stream.events.take(2)).map((event) => event.data), [1, 3]);
  stream.close();
});

test('a batch of 1,000 lines, the last without a newline, keeps its order', async () => {
  const stream = await sse(halley, 'dot');
  const body = [...Array(1_000).keys()]
    .map((n) => JSON.stringify({ subject: 'dot', data: n })).join('\n');
  const answer = await api(halley, 'POST', '/v1/events', body,
    { 'content-type': 'application/x-ndjson' });
  assert.equal(answer.body.trim().split('\n').length, 1_000);
  const events = await stream.events.take(1_000);
  assert.deepEqual(events.map((event) => event.data), [...Array(1_000).keys()]);
  stream.close();
});

test('POST /v1/follows, NDJSON: {"added":N,"already":N,"errors":[…]}', async () => {
  const body = '{"user":"u1","subject":"s1"}\n{"user":"u1","subject":"s2"}\n';
  const answer = await curl([...lines, '--data-binary', body, `${halley.apiUrl}/v1/follows`]);
  assert.equal(answer.status, 200);
  assertAnswer(answer.json, { added: 2, already: 0, errors: [] });
  assertAnswer(await follow(halley, ['u1', 's1'], ['u1', 's3']),
    { added: 1, already: 1, errors: [] });
});

test('POST /v1/follows, text/plain with "U S" a line; bad lines are reported', async () => {
  const answer = await curl([...text, '--data-binary', 't1 s1\nlonely\nt2 s1\n',
    `${halley.apiUrl}/v1/follows`]);
  assert.equal(answer.status, 200);
  assert.equal(answer.json.added, 2);
  assert.equal(answer.json.errors.length, 1);
});

test('DELETE /v1/follows: {"removed":N,…}, same bodies', async () => {
  await follow(halley, ['d1', 's'], ['d2', 's'], ['d3', 's']);
  assert.equal((await unfollow(halley, ['d1', 's'], ['d1', 'never'])).removed, 1);
  const answer = await curl(['-X', 'DELETE', ...text, '--data-binary', 'd2 s\n',
    `${halley.apiUrl}/v1/follows`]);
  assert.equal(answer.json.removed, 1);
  const page = (await api(halley, 'GET', '/v1/subjects/s/followers')).json;
  assert.ok(JSON.stringify(page).includes('"d3"') && !JSON.stringify(page).includes('"d2"'));
});

test('a chunked upload of 200,000 follows by curl -T is streamed', async () => {
  const count = 200_000;
  let body = '';
  for (let n = 0; n < count; n += 1) body += `up${n} big${n % 1_000}\n`;
  const path = scratchFile(halley, 'edges.txt', body);
  const answer = await curl(['-X', 'POST', ...text, '-H', 'Transfer-Encoding: chunked', '-T', path,
    `${halley.apiUrl}/v1/follows`]);
  assert.equal(answer.status, 200);
  assertAnswer(answer.json, { added: count, already: 0, errors: [] });
  const stream = await sse(halley, 'up123456');
  await publish(halley, 'big456', 'x');
  assertEvent(await stream.event(), 'big456', 'x');
  stream.close();
});

test('an upload piped by node, line by line', async () => {
  const path = scratchFile(halley, 'few.txt', 'p1 q\np2 q\n');
  const chunks = [];
  for await (const chunk of createReadStream(path)) chunks.push(chunk);
  const answer = await http('POST', `${halley.apiUrl}/v1/follows`,
    { body: Buffer.concat(chunks), headers: { 'content-type': 'text/plain' } });
  assert.equal(answer.json.added, 2);
});

/** Reads a paged list to its end; the list is the answer's one array. */
async function readPages(path, limit) {
  const all = [];
  let after = '';
  for (let pages = 0; pages < 100; pages += 1) {
    const answer = await api(halley, 'GET', `${path}?limit=${limit}${after}`);
    assert.equal(answer.status, 200);
    const list = Object.values(answer.json).find(Array.isArray);
    assert.ok(list.length <= limit, `a page of ${list.length}`);
    all.push(...list.map((item) => item.user ?? item.subject ?? item));
    if (answer.json.next === null || answer.json.next === undefined) return all;
    after = `&after=${encodeURIComponent(answer.json.next)}`;
  }
  throw new Error('more than 100 pages');
}

test('GET followers and following: pages, and next', async () => {
  const users = [...Array(25).keys()].map((n) => `page${n}`);
  await follow(halley, ...users.map((user) => [user, 'paged']));
  const followers = await readPages('/v1/subjects/paged/followers', 10);
  assert.deepEqual(followers.filter((user) => user !== 'paged').sort(), users.sort());
  await follow(halley, ...users.map((user) => ['reader', user]));
  const following = await readPages('/v1/users/reader/following', 7);
  assert.deepEqual(following.filter((user) => user !== 'reader').sort(), users.sort());
});

test('GET followers with a limit that is none: 400', async () => {
  assertError(await api(halley, 'GET', '/v1/subjects/paged/followers?limit=many'), 400);
});

test('GET /v1/users/U: {"user":U,"sessions":N,…}', async () => {
  const answer = await curl([`${halley.apiUrl}/v1/users/never-seen`]);
  assert.equal(answer.status, 200);
  assert.equal(answer.json.user, 'never-seen');
  assert.equal(answer.json.sessions, 0);
});

test('DELETE /v1/users/U/sessions closes them, and only them', async () => {
  const mine = [await sse(halley, 'gone'), await sse(halley, 'gone')];
  const other = await sse(halley, 'stays');
  const answer = await curl(['-X', 'DELETE', `${halley.apiUrl}/v1/users/gone/sessions`]);
  assert.ok(answer.status >= 200 && answer.status < 300, `status ${answer.status}`);
  for (const stream of mine) await stream.ended();
  await until('no session', async () => await sessionsOf(halley, 'gone') === 0);
  await publish(halley, 'stays', 1);
  await other.event();
  other.close();
});

test('GET /healthz, /readyz and /metrics (Prometheus text)', async () => {
  for (const path of ['/healthz', '/readyz']) {
    assert.equal((await curl([halley.apiUrl + path])).status, 200);
  }
  const metrics = await curl([`${halley.apiUrl}/metrics`]);
  assert.equal(metrics.status, 200);
  assert.match(metrics.headers['content-type'], /^text\/plain/);
  const names = new Set();
  for (const line of metrics.body.trimEnd().split('\n')) {
    if (/^# (HELP|TYPE) /.test(line) || line === '# EOF') continue;
    const sample = /^([a-z_:][a-z0-9_:]*)(\{[^}]*\})? (-?[0-9.e+-]+|NaN|[+-]Inf)$/i.exec(line);
    assert.ok(sample, `a sample: ${line}`);
    names.add(sample[1]);
  }
  assert.ok([...names].some((name) => name.startsWith('halley_edge_')), 'metrics of the edge');
  assert.ok([...names].some((name) => /^halley_(?!edge_)/.test(name)), 'metrics of the brain');
});

test('HEAD answers as GET without the body', async () => {
  const url = `${halley.apiUrl}/v1/users/never-seen`; // of whom nothing changes in between
  const get = await curl([url]);
  const head = await curl(['--head', url]);
  assert.equal(head.status, 200);
  assert.equal(head.body, '');
  assert.equal(head.headers['content-length'], get.headers['content-length']);
});

test('by default no other origin is allowed anything, not even one on loopback', async () => {
  const origin = ['-H', 'Origin: http://localhost:3000'];
  const preflight = await curl(['-X', 'OPTIONS', ...origin,
    '-H', 'Access-Control-Request-Method: POST',
    '-H', 'Access-Control-Request-Headers: content-type', `${halley.apiUrl}/v1/events`]);
  assert.equal(preflight.status, 204);
  assert.equal(preflight.headers['access-control-allow-origin'], undefined);
  const post = await curl([...origin, ...json, '-d', '{"subject":"a","data":1}',
    `${halley.apiUrl}/v1/events`]);
  assert.equal(assertError(post, 403).code, 'origin_not_allowed');
  const get = await curl([...origin, `${halley.apiUrl}/v1/users/a`]);
  assert.equal(get.status, 200);
  assert.equal(get.headers['access-control-allow-origin'], undefined);
});

test('unknown path 404, wrong method 405 with Allow', async () => {
  assertError(await curl([`${halley.apiUrl}/v1/nothing`]), 404);
  assertError(await curl([`${halley.publicUrl}/nothing`]), 404);
  const wrong = await curl(['-X', 'PUT', '-d', '', `${halley.apiUrl}/v1/events`]);
  assertError(wrong, 405);
  assert.match(wrong.headers.allow, /POST/);
});

test('the public listener does not serve the server API', async () => {
  assertError(await curl([...json, '-d', '{"subject":"a","data":1}',
    `${halley.publicUrl}/v1/users/a/sessions`]), 404);
  assertError(await curl([`${halley.publicUrl}/metrics`]), 404);
});

test('Expect: 100-continue is answered before the body is sent', async () => {
  // By itself curl waits a second, and then sends the body all the same.
  const answer = await curl([...json, '-H', 'Expect: 100-continue', '--expect100-timeout', '30',
    '-d', '{"subject":"ann","data":1}', `${halley.apiUrl}/v1/events`]);
  assert.equal(answer.status, 200);
  assert.deepEqual(answer.interim, [100]);
});

test('HTTP/1.0 without and with keep-alive', async () => {
  const answer = await curl(['--http1.0', `${halley.apiUrl}/v1/users/ann`]);
  assert.equal(answer.status, 200);
  assert.equal(answer.json.user, 'ann');
});
