// design.md, "Fault rules", and contract.md, "Processes, as seen from outside": for each process
// that dies, which ones stay, and what a client sees.

import assert from 'node:assert/strict';
import { after, before } from 'node:test';
import { api, follow, http, publish, sessionsOf } from '../lib/client.mjs';
import { assertError, assertEvent } from '../lib/expect.mjs';
import { isAlive, isHeld, kill, start, test } from '../lib/halley.mjs';
import { Raw } from '../lib/raw.mjs';
import { closeStreams, ndjson, sse, ws } from '../lib/streams.mjs';
import { sleep, until } from '../lib/wait.mjs';

let halley;
before(async () => { halley = await start(); });
after(async () => {
  closeStreams();
  await halley?.stop();
});

/** Kills brain and launcher as the kernel would. */
async function killBrain() {
  const edge = halley.edgePid();
  await halley.killBrain();
  assert.equal(isAlive(edge), true, 'the edge outlives the brain');
  return edge;
}

test('kill -9 of the brain: no connection drops, and events flow again on them', async () => {
  await follow(halley, ['ann', 'news'], ['ben', 'news'], ['cid', 'news']);
  const streams = [await sse(halley, 'ann'), await ndjson(halley, 'ben'), await ws(halley, 'cid')];
  await until('three sessions', async () => await sessionsOf(halley, 'cid') === 1);
  assert.equal((await publish(halley, 'news', 'before')).sessions, 3);
  for (const stream of streams) assertEvent(await stream.event(), 'news', 'before');

  const edge = await killBrain();
  await sleep(300);
  for (const stream of streams) assert.ok(!stream.isClosed, 'the stream is open');

  await halley.start();
  assert.equal(halley.edgePid(), edge, 'the restarted brain adopts the edge');
  await until('the sessions are known again', async () =>
    await sessionsOf(halley, 'ann') === 1 && await sessionsOf(halley, 'ben') === 1
      && await sessionsOf(halley, 'cid') === 1);
  assert.equal((await publish(halley, 'news', 'after')).sessions, 3);
  for (const stream of streams) assertEvent(await stream.event(), 'news', 'after');
  for (const stream of streams) {
    await stream.quiet('a second copy', 20);
    assert.ok(!stream.isClosed, 'the same connection');
    stream.close();
  }
});

test('without a brain API requests get 503 with Retry-After, at once', async () => {
  await killBrain();
  const started = Date.now();
  const answer = await api(halley, 'POST', '/v1/events', { subject: 'a', data: 1 });
  assertError(answer, 503);
  assert.match(answer.headers['retry-after'], /^\d+$/);
  assert.ok(Date.now() - started < 10_000, 'no waiting for a brain that is gone');
  assertError(await api(halley, 'GET', '/readyz'), 503);
  await halley.start();
});

test('a request that is open when the brain dies gets 503', async () => {
  const raw = await Raw.open(halley.apiPort);
  raw.send('POST /v1/follows HTTP/1.1\r\nHost: h\r\nContent-Type: text/plain\r\n'
    + 'Transfer-Encoding: chunked\r\n\r\n4\r\na b\n\r\n');
  await sleep(100);
  await killBrain();
  assertError((await raw.answers(1))[0], 503);
  raw.close();
  await halley.start();
});

test('clients that left while the brain was away are not online after its return', async () => {
  const [leaves, stays] = [await sse(halley, 'leaves'), await sse(halley, 'stays')];
  await killBrain();
  const { localPort } = leaves.outgoing.socket;
  assert.ok(isHeld(halley.publicPort, localPort), 'the search finds what is there');
  leaves.close();
  await until('the edge has seen it leave', () => !isHeld(halley.publicPort, localPort));
  await halley.start();
  await until('the one that stayed', async () => await sessionsOf(halley, 'stays') === 1);
  assert.equal(await sessionsOf(halley, 'leaves'), 0);
  stays.close();
});

test('follows that were acknowledged survive kill -9 of the brain', async () => {
  const pairs = [...Array(500).keys()].map((n) => [`durable${n}`, 'rock']);
  assert.equal((await follow(halley, ...pairs)).added, 500);
  await killBrain();
  await halley.start();
  assert.equal((await follow(halley, ...pairs)).already, 500);
  const stream = await sse(halley, 'durable499');
  await publish(halley, 'rock', 1);
  assertEvent(await stream.event(), 'rock', 1);
  stream.close();
});

test('kill -9 of the edge: it is restarted, clients reconnect, follows are there', async () => {
  await follow(halley, ['dora', 'sky']);
  const lost = await sse(halley, 'dora');
  const edge = halley.edgePid();
  const brain = halley.brainPid();
  kill(edge, 'SIGKILL');
  await lost.ended();
  const stream = await until('a client reconnects', async () => {
    const again = await sse(halley, 'dora');
    return again.status === 200 ? again : null;
  });
  await halley.ready();
  assert.notEqual(halley.edgePid(), edge);
  assert.equal(halley.brainPid(), brain, 'the brain is the same');
  await until('one session, not two', async () => await sessionsOf(halley, 'dora') === 1);
  assert.equal((await publish(halley, 'sky', 1)).sessions, 1);
  assertEvent(await stream.event(), 'sky', 1);
  stream.close();
});

test('SIGTERM to the edge alone: it stops cleanly and is restarted', async () => {
  const edge = halley.edgePid();
  kill(edge, 'SIGTERM');
  await until('the edge is gone', () => !isAlive(edge));
  await until('another is there', () => halley.edgePids().length === 1);
  await halley.ready();
});

test('an edge that hangs keeps nobody from stopping: SIGTERM ends both all the same', async () => {
  const other = await start({ settings: { HALLEY_DRAIN_TIME: '1s' } });
  const edge = other.edgePid();
  kill(edge, 'SIGSTOP');
  try {
    assert.equal((await other.stop()).code, 0);
  } finally {
    kill(edge, 'SIGKILL');
  }
});

test('a client that vanishes is not online any more', async () => {
  const streams = await Promise.all([...Array(20).keys()].map(() => sse(halley, 'vanish')));
  assert.equal(await sessionsOf(halley, 'vanish'), 20);
  for (const stream of streams) stream.outgoing.socket.resetAndDestroy();
  await until('no session', async () => await sessionsOf(halley, 'vanish') === 0);
});

test('a client that never reads is cut off, and nobody else waits for it', async () => {
  const slow = await Raw.open(halley.publicPort);
  slow.send('GET /v1/stream?user=slow HTTP/1.1\r\nHost: h\r\n\r\n');
  await slow.text(': welcome');
  slow.socket.pause();
  await follow(halley, ['slow', 'flood'], ['quick', 'flood']);
  const quick = await sse(halley, 'quick');
  const data = 'x'.repeat(60_000);
  for (let n = 0; n < 400; n += 1) {
    await publish(halley, 'flood', data);
    assert.equal((await quick.event()).data.length, data.length);
    if (n % 20 === 19 && await sessionsOf(halley, 'slow') === 0) break;
  }
  await until('the slow consumer was closed', async () => await sessionsOf(halley, 'slow') === 0);
  quick.close();
  slow.close();
});

test('a burst of 500 connections at once: all become sessions', async () => {
  const streams = await Promise.all([...Array(500).keys()].map((n) => sse(halley, `burst${n}`)));
  assert.ok(streams.every((stream) => stream.status === 200));
  for (const stream of streams) stream.close();
  assert.equal((await http('GET', `${halley.apiUrl}/healthz`)).status, 200);
});
