// docs/internals/trunk.md, by the real release: one connection for all workers, be it one, and what
// stays when its brain is killed.

import assert from 'node:assert/strict';
import { after, before } from 'node:test';
import { api, follow, publish, sessionsOf } from '../lib/client.mjs';
import { assertEvent } from '../lib/expect.mjs';
import { isAlive, start, test } from '../lib/halley.mjs';
import { metric } from '../lib/metrics.mjs';
import { closeStreams, ndjson, poll, sse, ws } from '../lib/streams.mjs';
import { until } from '../lib/wait.mjs';

const WORKERS = 4;
const USERS = Array.from({ length: 24 }, (_, n) => `user${n}`);
const OPEN = [sse, ndjson, ws];

let halley;
before(async () => {
  halley = await start({
    settings: { HALLEY_EDGE_WORKERS: `${WORKERS}` },
  });
  await follow(halley, ...USERS.map((user) => [user, 'news']));
});
after(async () => {
  closeStreams();
  await halley?.stop();
});

const opened = () => Promise.all(USERS.map((user, n) => OPEN[n % OPEN.length](halley, user)));

const known = () => until('all sessions are known', async () =>
  (await Promise.all(USERS.map((user) => sessionsOf(halley, user)))).every((n) => n === 1));

async function everybodyGets(streams, data) {
  assert.equal((await publish(halley, 'news', data)).sessions, USERS.length);
  for (const stream of streams) assertEvent(await stream.event(), 'news', data);
}

const handshakes = () => (halley.log.match(/trunk: handshake with/g) ?? []).length;

test('all workers are linked by one connection, and events reach the clients of each', async () => {
  await until('each worker has its link', async () =>
    await metric(halley, 'halley_links') === WORKERS);
  await until('the log says so', () => handshakes() > 0);
  assert.equal(handshakes(), 1);
  const streams = await opened();
  await known();
  for (const data of [1, 2, 3]) await everybodyGets(streams, data);
  for (const stream of streams) stream.close();
});

async function brainIsKilled() {
  const streams = await opened();
  await known();
  await everybodyGets(streams, 'before');
  const edge = halley.edgePid();
  await halley.killBrain();
  assert.ok(isAlive(edge), 'the edge outlives the brain');
  await halley.start();
  assert.equal(halley.edgePid(), edge, 'the restarted brain adopts the edge');
  await known();
  await everybodyGets(streams, 'after');
  for (const stream of streams) {
    await stream.quiet('a second copy', 20);
    assert.ok(!stream.isClosed, 'the same connection');
    stream.close();
  }
}

test('kill -9 of the brain: connections stay, and what was missed comes once', brainIsKilled);

test('who comes back with a cursor gets what was missed', async () => {
  const { cursor } = await poll(halley, USERS[0], { timeout: 0 });
  await publish(halley, 'news', 'missed');
  const { events } = await poll(halley, USERS[0], { cursor, timeout: 20 });
  assert.deepEqual(events.map((event) => event.data), ['missed']);
  assert.equal((await api(halley, 'GET', '/readyz')).status, 200);
});

test('an edge of one worker takes its place, and outlives a brain as well', async () => {
  const edge = halley.edgePid();
  await halley.killBrain();
  halley.settings.HALLEY_EDGE_WORKERS = '1';
  await halley.start();
  await until('the edge has been replaced', () => !isAlive(edge));
  await until('its worker has its link', async () => await metric(halley, 'halley_links') === 1);
  await brainIsKilled();
});
