// A proxy between that breaks transports: the client goes on by the next, and loses nothing.

import assert from 'node:assert/strict';
import { after, before } from 'node:test';
import { publish } from '../../../test/lib/client.mjs';
import { start, test } from '../../../test/lib/halley.mjs';
import { until } from '../../../test/lib/wait.mjs';
import { client, proxy, reaches } from './lib/world.mjs';

const LONG_MS = 120_000;
/** For proxies that say nothing: twice the heartbeat. */
const SILENCE_MS = 6_000;

let halley;
before(async () => { halley = await start({ settings: { HALLEY_STREAM_HEARTBEAT: '3s' } }); });
after(() => halley?.stop());

const isWs = (path) => path.startsWith('/v1/ws');
const isStream = (path) => path.startsWith('/v1/stream');
const wantsNdjson = ({ headers }) => headers.accept === 'application/x-ndjson';

/** Behind such a proxy the client uses `transport` in the end, and has everything once. */
async function behind(name, transport, hold, silenceMs) {
  const way = await proxy(halley.publicPort, hold);
  const one = client(way.url, { user: name, silenceMs });
  try {
    await until(`${transport} is open`, () =>
      one.halley.state === 'open' && one.halley.transport === transport, LONG_MS);
    for (let n = 0; n < 5; n += 1) await publish(halley, name, n);
    way.cut();
    for (let n = 5; n < 10; n += 1) await publish(halley, name, n);
    const items = await one.items.take(10, 'events', LONG_MS);
    assert.deepEqual(items.map(({ data }) => data), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    await one.items.none();
    const { id } = await one.halley.publish(name, 'by the same way');
    assert.ok(id);
    assert.equal((await one.items.next()).data, 'by the same way');
    return way.paths;
  } finally {
    one.halley.close();
    way.close();
  }
}

test('none of it broken: the WebSocket, and nothing else is asked', async () => {
  const paths = await behind('clear', 'websocket', () => undefined);
  assert.ok(paths.every(isWs), `${paths}`);
});

test('WebSockets refused: SSE', async () => {
  await behind('no-ws', 'sse', (path) => (isWs(path) ? 'refuse' : undefined));
});

test('WebSockets swallowed: SSE', async () => {
  await behind('ws-hangs', 'sse', (path) => (isWs(path) ? 'hang' : undefined), SILENCE_MS);
});

test('event streams refused as well: NDJSON', async () => {
  await behind('no-sse', 'ndjson', (path, request) =>
    (isWs(path) || (isStream(path) && !wantsNdjson(request)) ? 'refuse' : undefined));
});

test('answers held until they are whole: long-poll', async () => {
  await behind('buffers', 'poll', (path) => (isWs(path) ? 'refuse' : 'buffer'), SILENCE_MS);
});

test('the first bytes of a stream let through, the others held: the next but one, long-poll',
  async () => {
    const way = await proxy(halley.publicPort, (path) =>
      (isWs(path) ? 'refuse' : isStream(path) ? 'head' : undefined));
    const one = client(way.url, { user: 'heads', silenceMs: SILENCE_MS });
    await until('long-poll', () => one.halley.transport === 'poll', LONG_MS);
    await publish(halley, 'heads', 1);
    assert.equal((await one.items.next()).data, 1);
    one.halley.close();
    way.close();
  });

test('the client says so while nothing works, and is back when it does', async () => {
  let isCut = true;
  const way = await proxy(halley.publicPort, () => (isCut ? 'refuse' : undefined));
  const one = client(way.url, { user: 'patient' });
  await until('it has tried all', () => one.reasons.length >= 4, LONG_MS);
  assert.equal(one.halley.state, 'connecting');
  assert.equal(one.reasons[1], 'http');
  isCut = false;
  await reaches(one, 'open');
  one.halley.close();
  way.close();
});

test('a publish that is under way when all is cut is done once', async () => {
  const way = await proxy(halley.publicPort, () => undefined);
  const one = client(way.url, { user: 'writer' });
  await reaches(one, 'open');
  const reader = client(halley.publicUrl, { user: 'reader' });
  await reaches(reader, 'open');
  await reader.halley.follow('writer');
  const done = [];
  for (let n = 0; n < 60; n += 1) {
    done.push(one.halley.publish('writer', n));
    if (n % 20 === 10) {
      await new Promise((turn) => { setTimeout(turn, 2); });
      way.cut();
    }
  }
  await Promise.all(done);
  const items = await reader.items.take(60);
  assert.deepEqual(items.map(({ data }) => data).sort((a, b) => a - b),
    Array.from({ length: 60 }, (_, n) => n));
  await reader.items.none();
  one.halley.close();
  reader.halley.close();
  way.close();
});
