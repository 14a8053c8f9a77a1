// Issue "Nothing lost" 7 and http.md 13: everyone comes back at once, and service goes on.

import assert from 'node:assert/strict';
import { after } from 'node:test';
import { follow, publish, sessionsOf } from '../lib/client.mjs';
import { kill, start, test } from '../lib/halley.mjs';
import { Raw } from '../lib/raw.mjs';
import { closeStreams, open, poll, sse } from '../lib/streams.mjs';
import { sleep, until } from '../lib/wait.mjs';

after(() => closeStreams());

async function withHalley(settings, body) {
  const halley = await start({ settings });
  try {
    await body(halley);
  } finally {
    closeStreams();
    await halley.stop();
  }
}

const ask = (user, accept) =>
  `GET /v1/stream?user=${user} HTTP/1.1\r\nHost: h\r\nAccept: ${accept}\r\n\r\n`;

test('13.3 each welcome\'s retry: is another, from half to one and a half times the setting',
  async () => {
  await withHalley({ HALLEY_STREAM_RETRY: '1s' }, async (halley) => {
    const streams = await Promise.all(Array.from({ length: 60 }, () => sse(halley, 'ann')));
    const retries = await Promise.all(streams.map((stream) =>
      until('retry:', () => stream.last_retry).then(Number)));
    for (const retry of retries) assert.ok(retry >= 500 && retry <= 1_500, `${retry}`);
    assert.ok(new Set(retries).size > 30, `spread: ${retries}`);
  });
});

test('13.1 admission.rate is the pace; who waits is admitted in order, the living don\'t notice',
  async () => {
  await withHalley({ HALLEY_ADMISSION_RATE: '40', HALLEY_EDGE_WORKERS: '1' }, async (halley) => {
    const living = await sse(halley, 'bob');
    const began = Date.now();
    const opening = Array.from({ length: 120 }, (_, n) => sse(halley, `b${n}`));
    const latencies = [];
    for (let n = 0; n < 20; n += 1) {
      const sent = Date.now();
      await publish(halley, 'bob', n);
      assert.equal((await living.event()).data, n);
      latencies.push(Date.now() - sent);
      await sleep(50);
    }
    const streams = await Promise.all(opening);
    const took = Date.now() - began;
    assert.ok(streams.every(({ status }) => status === 200));
    assert.ok(took > 1_000, `120 at 40 in a second took ${took} ms`);
    // One of them may meet a pause of the machine; behind who waits all would be late.
    const [usual] = latencies.toSorted((a, b) => a - b).slice(15);
    assert.ok(usual < 500, `live events: ${latencies}`);
  });
});

test('13.2 who would wait too long is told to come back, each transport in its way', async () => {
  await withHalley({ HALLEY_ADMISSION_RATE: '2', HALLEY_EDGE_WORKERS: '1',
    HALLEY_LIMITS_ADMISSION_WAIT_MS_MAX: '500' }, async (halley) => {
    const raws = await Promise.all(Array.from({ length: 40 }, () => Raw.open(halley.publicPort)));
    for (const [n, raw] of raws.entries()) {
      raw.send(ask(`c${n}`, n % 2 === 0 ? 'text/event-stream' : 'application/x-ndjson'));
    }
    // A stream's first words end with an empty line, or are a line of JSON; a refusal is one.
    const isWhole = (text) => /retry:[^]*\n\n|\{"(cursor|error)":[^]*\}/.test(text);
    const texts = await until('all have a whole answer', () => {
      const all = raws.map((raw) => raw.bytes.toString());
      return all.every(isWhole) && all;
    });
    const busy = texts.filter((text) => text.includes(': busy'));
    assert.ok(busy.length > 5, `busy SSE: ${busy.length}`);
    for (const text of busy) {
      assert.match(text, /^HTTP\/1\.1 200 /);
      assert.ok(Number(/retry: ?(\d+)/.exec(text)[1]) >= 1_000, text);
    }
    const refused = texts.filter((text) => text.startsWith('HTTP/1.1 503'));
    assert.ok(refused.length > 5, `503: ${refused.length}`);
    for (const text of refused) {
      assert.match(text, /"code":"busy"/);
      assert.match(text, /retry-after: [1-9]/i);
    }
    const welcomed = texts.filter((text) =>
      text.startsWith('HTTP/1.1 200') && !text.includes(': busy'));
    assert.ok(welcomed.length >= 1, `welcomed: ${welcomed.length}`);
    for (const raw of raws) raw.close();
  });
});

test('800 clients, all transports, an edge that dies: all are back with what they missed',
  async () => {
  await withHalley({}, async (halley) => {
    const COUNT = 800;
    const names = Object.keys(open);
    const cursor = (await poll(halley, 'e0', { timeout: 0 })).cursor;
    const users = Array.from({ length: COUNT }, (_, n) => `e${n}`);
    await follow(halley, ...users.map((user) => [user, 'all']));
    for (let n = 1; n <= 20; n += 1) await publish(halley, 'all', n);
    kill(halley.edgePid(), 'SIGKILL');
    await until('another edge', () => halley.edgePids().length === 1);
    await halley.ready();
    const began = Date.now();
    const streams = await Promise.all(users.map((user, n) =>
      open[names[n % names.length]](halley, user, {}, cursor)));
    const seen = await Promise.all(streams.map((stream) =>
      stream.events.take(20, 'missed')));
    for (const events of seen) {
      assert.deepEqual(events.map((event) => event.data),
        Array.from({ length: 20 }, (_, n) => n + 1));
    }
    assert.ok(Date.now() - began < 60_000);
    await until('all are sessions', async () => await sessionsOf(halley, `e${COUNT - 2}`) === 1);
    await publish(halley, 'all', 'live');
    for (const stream of streams) assert.equal((await stream.event()).data, 'live');
  });
});
