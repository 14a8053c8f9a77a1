// contract.md, "Client side (public listener)": each stream by a real client.

import assert from 'node:assert/strict';
import { after, before } from 'node:test';
import { CurlStream, curl, follow, publish, sessionsOf } from '../lib/client.mjs';
import { assertError, assertEvent } from '../lib/expect.mjs';
import { start, test } from '../lib/halley.mjs';
import { article, closeStreams, live, ndjson, sse, ws } from '../lib/streams.mjs';
import { until } from '../lib/wait.mjs';

let halley;
before(async () => { halley = await start(); });
after(async () => {
  closeStreams();
  await halley?.stop();
});

test('SSE by curl: first ": welcome", then "data: {id, subject, at, data}"', async () => {
  const stream = new CurlStream(`${halley.publicUrl}/v1/stream?user=ann`,
    ['-H', 'Accept: text/event-stream']);
  try {
    let line;
    do line = await stream.lines.next('the welcome'); while (!line.startsWith(': welcome'));
    await publish(halley, 'ann', { text: 'hello' });
    do line = await stream.lines.next('data'); while (!line.startsWith('data:'));
    assertEvent(JSON.parse(line.slice(5)), 'ann', { text: 'hello' });
    assert.equal(await stream.lines.next('the end of the event'), '');
  } finally {
    stream.close();
  }
});

test('SSE without Accept, and with headers that stop proxies from buffering', async () => {
  const stream = await sse(halley, 'bob', { accept: '*/*' });
  assert.equal(stream.status, 200);
  assert.match(stream.headers['content-type'], /^text\/event-stream/);
  assert.match(stream.headers['cache-control'], /no-cache|no-store/);
  assert.equal(stream.headers['x-accel-buffering'], 'no');
  await publish(halley, 'bob', 1);
  assertEvent(await stream.event(), 'bob', 1);
  stream.close();
});

test('NDJSON by curl: the same JSON, one event a line', async () => {
  const stream = new CurlStream(`${halley.publicUrl}/v1/stream?user=cid`,
    ['-H', 'Accept: application/x-ndjson']);
  try {
    await until('the session is there', async () => await sessionsOf(halley, 'cid') === 1);
    await publish(halley, 'cid', ['a', null]);
    let value;
    do {
      const line = await stream.lines.next('the event');
      value = line.trim() === '' ? {} : JSON.parse(line);
    } while (!('subject' in value));
    assertEvent(value, 'cid', ['a', null]);
  } finally {
    stream.close();
  }
});

test('NDJSON is chunked and named by its type', async () => {
  const stream = await ndjson(halley, 'dan');
  assert.equal(stream.status, 200);
  assert.match(stream.headers['content-type'], /^application\/x-ndjson/);
  assert.equal(stream.headers['transfer-encoding'], 'chunked');
  stream.close();
});

test('WebSocket: text frames with that JSON', async () => {
  const stream = await ws(halley, 'eve');
  await until('the session is there', async () => await sessionsOf(halley, 'eve') === 1);
  await publish(halley, 'eve', { n: 1.5 });
  const event = await stream.event();
  assert.equal(event.isBinary, false);
  assertEvent(event, 'eve', { n: 1.5 });
  stream.close();
});

test('/test/<user>: text/html in chunks, a welcome, then the data of each event', async () => {
  const stream = await article(halley, '123');
  assert.equal(stream.status, 200);
  assert.match(stream.headers['content-type'], /^text\/html/);
  assert.equal(stream.headers['transfer-encoding'], 'chunked');
  assert.ok((await stream.event('the welcome chunk')).length > 0);
  await publish(halley, '123', { old: true });
  assert.deepEqual(JSON.parse(await stream.event()), { old: true });
  stream.close();
});

test('one event reaches a follower on every transport at once', async () => {
  await follow(halley, ['fan', 'star']);
  const streams = await Promise.all(Object.values(live).map((open) => open(halley, 'fan')));
  const count = streams.length;
  await until('all sessions', async () => await sessionsOf(halley, 'fan') === count);
  const answer = await publish(halley, 'star', 'hi');
  assert.equal(answer.sessions, count);
  const events = await Promise.all(streams.map((stream) => stream.event()));
  for (const event of events) assertEvent(event, 'star', 'hi');
  assert.equal(new Set(events.map((event) => event.id)).size, 1);
  assert.equal(events[0].id, answer.id);
  for (const stream of streams) stream.close();
});

const payloads = {
  string: 'plain', empty: '', number: -12.5e10, 'null': null, 'false': false, array: [1, [2, {}]],
  nested: { a: { b: [{ c: 'd' }] } }, unicode: 'žluťoučký 🐎 \u2028 \u0000 "\\\n',
  'a large one': 'x'.repeat(60_000),
};
for (const [name, data] of Object.entries(payloads)) {
  test(`"data (any JSON)" arrives as it was sent: ${name}`, async () => {
    const user = `gus ${name}`;
    const streams = await Promise.all(Object.values(live).map((open) => open(halley, user)));
    await until('all sessions', async () => await sessionsOf(halley, user) === streams.length);
    await publish(halley, user, data);
    for (const stream of streams) assertEvent(await stream.event(), user, data);
    for (const stream of streams) stream.close();
  });
}

test('events of one subject arrive in the order of their publishing', async () => {
  const stream = await sse(halley, 'hal');
  const count = 200;
  for (let n = 0; n < count; n += 1) await publish(halley, 'hal', n);
  const events = await stream.events.take(count, 'event');
  assert.deepEqual(events.map((event) => event.data), [...Array(count).keys()]);
  stream.close();
});

test('a stream without ?user= is refused with a message that says so', async () => {
  const answer = await curl([`${halley.publicUrl}/v1/stream`]);
  assert.ok([400, 401].includes(answer.status), `status ${answer.status}`);
  assert.match(assertError(answer, answer.status).message, /user/);
});

for (const [what, user] of [
  ['empty', ''], ['256 bytes', 'x'.repeat(256)], ['not UTF-8', '%ff%fe'],
]) {
  test(`a stream for a bad user id (${what}) is refused`, async () => {
    assertError(await curl([`${halley.publicUrl}/v1/stream?user=${user}`]), 400);
  });
}

test('HEAD of a stream answers without a body and opens no session', async () => {
  const answer = await curl(['--head', `${halley.publicUrl}/v1/stream?user=ivy`]);
  assert.ok([200, 405].includes(answer.status), `status ${answer.status}`);
  assert.equal(answer.body, '');
  assert.equal(await sessionsOf(halley, 'ivy'), 0);
});

test('a stream over HTTP/1.0 is not chunked and ends with the connection', async () => {
  const stream = new CurlStream(`${halley.publicUrl}/v1/stream?user=jon`, ['--http1.0', '-i']);
  try {
    const head = [];
    let line;
    while ((line = (await stream.lines.next('the head')).trim()) !== '') head.push(line);
    assert.match(head[0], /^HTTP\/1\.[01] 200/);
    assert.ok(!head.some((field) => /^transfer-encoding/i.test(field)), head.join('\n'));
    do line = await stream.lines.next('the welcome'); while (!line.startsWith(': welcome'));
    await publish(halley, 'jon', 7);
    do line = await stream.lines.next('data'); while (!line.startsWith('data:'));
    assertEvent(JSON.parse(line.slice(5)), 'jon', 7);
  } finally {
    stream.close();
  }
});
