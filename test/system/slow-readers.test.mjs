// protocol/http.md 12.5: a brain that stood still publishes much at once, and clients that read
// slowly stay: "a client that takes bytes is there".

import assert from 'node:assert/strict';
import { request } from 'node:http';
import { before } from 'node:test';
import WebSocket from 'ws';
import { follow, publish } from '../lib/client.mjs';
import { kill, start, test } from '../lib/halley.mjs';
import { until, within } from '../lib/wait.mjs';
import { endAfter } from '../lib/world.mjs';

const EVENTS = 25;
const BYTES = 20_000;
const BYTES_PER_S = 50_000;
const STILL_MS = 4_000;

let halley;
before(async () => {
  halley = await start({ settings: { HALLEY_STREAM_HEARTBEAT: '3s' } });
});
endAfter(() => [halley]);

const sleep = (ms) => new Promise((done) => { setTimeout(done, ms); });
const numbers = (text) => [...text.matchAll(/"data":\{"n":(\d+),/g)].map(([, n]) => Number(n));

/** Reads a stream's body at its pace; gives the numbers of the events once all have come. */
const stream = (accept) => (url, isOpen) => new Promise((resolve, reject) => {
  const outgoing = request(`${url.http}/v1/stream?user=u`, { headers: { accept } });
  outgoing.on('error', reject);
  outgoing.on('response', async (incoming) => {
    let text = '';
    isOpen();
    try {
      for await (const chunk of incoming) {
        text += chunk;
        if (numbers(text).length === EVENTS) break;
        await sleep(1_000 * chunk.length / BYTES_PER_S);
      }
      resolve(numbers(text));
    } catch (error) {
      reject(error);
    }
  });
  outgoing.end();
});

/** Likewise a WebSocket, which answers pings when it comes to them. */
const websocket = (url, isOpen) => new Promise((resolve, reject) => {
  const socket = new WebSocket(`${url.ws}/v1/ws?user=u`, { perMessageDeflate: false });
  const seen = [];
  let paused = 0;
  let free = 0;
  socket.on('open', isOpen);
  socket.on('error', reject);
  socket.on('close', (code, reason) => reject(new Error(`closed: ${code} ${reason}`)));
  socket.on('message', async (data) => {
    seen.push(...numbers(`${data}`));
    if (seen.length === EVENTS) {
      resolve(seen);
      socket.terminate();
      return;
    }
    // Several come in one piece, which a pause doesn't stop.
    paused += 1;
    socket.pause();
    free = Math.max(free, Date.now()) + 1_000 * data.length / BYTES_PER_S;
    await sleep(free - Date.now());
    paused -= 1;
    if (paused === 0) socket.resume();
  });
});

test('12.5 slow readers on every transport, behind a brain that stood still', async () => {
  await follow(halley, ['u', 's']);
  const url = { http: halley.publicUrl, ws: halley.publicUrl.replace('http', 'ws') };
  let open = 0;
  const reading = [stream('text/event-stream'), stream('application/x-ndjson'), websocket]
    .map((read) => read(url, () => { open += 1; }));
  reading.forEach((one) => one.catch(() => {}));
  await until('all are open', () => open === reading.length);
  kill(halley.brainPid(), 'SIGSTOP');
  const filler = 'x'.repeat(BYTES);
  const published = (async () => {
    for (let n = 0; n < EVENTS; n += 1) await publish(halley, 's', { n, filler });
  })();
  await sleep(STILL_MS);
  kill(halley.brainPid(), 'SIGCONT');
  await published;
  for (const one of reading) {
    assert.deepEqual(await within('a slow reader', one, 120_000),
      Array.from({ length: EVENTS }, (_, n) => n));
  }
});
