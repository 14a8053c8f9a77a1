// Issue "Nothing lost" 8, http.md 13.4 and contract.md: a stop tells every client where to go on
// and when, spreads the closing over drain.time, answers what it has begun, and exits with 0.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { after } from 'node:test';
import { api, publish, sessionsOf } from './lib/client.mjs';
import { isAlive, kill, start, test } from './lib/halley.mjs';
import { closeStreams, open, poll, sse } from './lib/streams.mjs';
import { sleep, until, within } from './lib/wait.mjs';

// An edge closes at least 500 streams in a second, so a spread shows only with many on one worker.
const STREAMS = 600;
const SPREAD_MS = 600;
const settings = { HALLEY_DRAIN_TIME: '2s', HALLEY_EDGE_WORKERS: '1' };
const LAUNCHER = process.env.LAUNCHER ?? fileURLToPath(new URL('../../halley', import.meta.url));

after(() => closeStreams());

/** `./halley drain` with the configuration of `halley`. */
function drainCommand(halley) {
  const child = spawn(LAUNCHER, ['drain'], { cwd: halley.folder,
    env: { ...process.env, ...halley.settings }, stdio: ['ignore', 'pipe', 'pipe'] });
  let output = '';
  for (const pipe of [child.stdout, child.stderr]) pipe.on('data', (text) => { output += text; });
  return within('halley drain has returned', new Promise((resolve) => {
    child.once('close', (code) => resolve({ code, output }));
  }), 20_000);
}

for (const [name, stop] of Object.entries({
  SIGTERM: (halley) => halley.terminate('SIGTERM'),
  'halley drain': async (halley) => {
    const { code, output } = await drainCommand(halley);
    assert.equal(code, 0, output);
    return halley.exited();
  },
})) {
  test(`${name}: closings are spread, each with a cursor that goes on where it ended`, async () => {
    const halley = await start({ settings });
    try {
      const names = ['sse', 'ndjson', 'ws'];
      const streams = await Promise.all(Array.from({ length: STREAMS }, (_, n) =>
        open[names[n % 3]](halley, `d${n}`)));
      await Promise.all(streams.map((stream) => stream.place()));
      const brain = halley.brainPid();
      const edge = halley.edgePid();
      const began = Date.now();
      const ends = streams.map(async (stream) => {
        await stream.ended(15_000);
        return Date.now() - began;
      });
      const stopping = stop(halley);
      const times = (await Promise.all(ends)).sort((a, b) => a - b);
      assert.equal((await stopping).code, 0);
      await until('both are gone', () => !isAlive(brain) && !isAlive(edge));
      assert.ok(times.at(-1) - times[0] > SPREAD_MS, `spread: ${times[0]} to ${times.at(-1)}`);
      assert.ok(times.at(-1) < 8_000, `in time: ${times.at(-1)}`);
      for (const stream of streams) assert.ok(stream.cursor, 'it knows where to go on');
      const retries = streams.map((stream) => stream.last_retry).filter(Boolean).map(Number);
      assert.equal(retries.length, STREAMS / 3, 'each SSE stream is told when to come back');
      assert.ok(new Set(retries).size > 50, `13.4 not all at the same time: ${retries}`);

      await halley.start();
      for (const n of [0, 1, 2]) {
        await publish(halley, `d${n}`, n);
        const again = await open.ndjson(halley, `d${n}`, {}, streams[n].cursor);
        assert.equal((await again.event()).data, n);
        again.close();
      }
    } finally {
      await halley.stop();
    }
  });
}

test('events that are published during the drain reach who is still there, and the history',
  async () => {
  const halley = await start({ settings });
  try {
    const cursor = (await poll(halley, 'ann', { timeout: 0 })).cursor;
    const streams = await Promise.all(Array.from({ length: 30 }, () => sse(halley, 'ann')));
    const acked = [];
    const stopping = halley.terminate('SIGTERM');
    for (let n = 0; ; n += 1) {
      const answer = await api(halley, 'POST', '/v1/events', { subject: 'ann', data: n })
        .catch(() => ({ status: 0 }));
      if (answer.status === 0) break;
      if (answer.status === 200) acked.push(n);
      else assert.equal(answer.status, 503, answer.body);
      await sleep(10);
    }
    assert.equal((await stopping).code, 0);
    await halley.start();
    const again = await sse(halley, 'ann', {}, cursor);
    const seen = (await again.events.take(acked.length)).map((event) => event.data);
    for (const n of acked) assert.ok(seen.includes(n), `event ${n} of ${acked.length}`);
    for (const stream of streams) {
      const live = stream.events.drain().map((event) => event.data);
      assert.deepEqual(live, acked.slice(0, live.length), 'a beginning without holes');
      const rest = await sse(halley, 'ann', {}, stream.cursor);
      const missed = acked.length - live.length;
      assert.deepEqual((await rest.events.take(missed)).map((event) => event.data),
        acked.slice(live.length), 'the cursor goes on exactly there');
      rest.close();
    }
    again.close();
  } finally {
    await halley.stop();
  }
});

test('a drain refuses newcomers, and who waits in a poll gets an answer', async () => {
  const halley = await start({ settings });
  try {
    const keep = await sse(halley, 'bob');
    const waiting = poll(halley, 'bob', { timeout: 9 }).catch((error) => error);
    await until('both are there', async () => await sessionsOf(halley, 'bob') === 2);
    const stopping = halley.terminate('SIGTERM');
    await sleep(150);
    const answer = await sse(halley, 'late').catch((error) => error);
    assert.notEqual(answer.status, 200, 'no new stream while it stops');
    const polled = await waiting;
    assert.ok([200, 503].includes(polled.status), `the poll: ${polled.status ?? polled.message}`);
    await stopping;
    keep.close();
  } finally {
    await halley.stop();
  }
});

test('a second SIGTERM cuts the drain short', async () => {
  const halley = await start({ settings });
  try {
    const streams = await Promise.all(Array.from({ length: STREAMS }, () => sse(halley, 'cat')));
    kill(halley.launcherPid, 'SIGTERM');
    await until('it has begun', () => streams.some((stream) => stream.isClosed));
    const left = streams.filter((stream) => !stream.isClosed);
    assert.ok(left.length > STREAMS / 3, `it takes its time: ${left.length} are left`);
    kill(halley.launcherPid, 'SIGTERM');
    await until('all are closed', () => left.every((stream) => stream.isClosed), SPREAD_MS);
    await halley.exited(8_000);
    await until('the edge is gone', () => halley.edgePids().length === 0);
  } finally {
    halley.killAll();
  }
});
