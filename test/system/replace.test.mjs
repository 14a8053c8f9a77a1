// link.md 9.3: an edge that was started with other settings is replaced: its streams end over
// drain.time, get the events published meanwhile, and clients that connect are answered all the
// time.

import assert from 'node:assert/strict';
import { after } from 'node:test';
import { api, publish } from '../lib/client.mjs';
import { isAlive, start, test } from '../lib/halley.mjs';
import { closeStreams, open, sse } from '../lib/streams.mjs';
import { sleep, until } from '../lib/wait.mjs';

// As in drain.test.mjs: 3 s of closings at 500 a second.
const STREAMS = 1_500;
const SPREAD_MS = 600;
const settings = { HALLEY_DRAIN_TIME: '3s', HALLEY_EDGE_WORKERS: '1' };

after(() => closeStreams());

/** Asks by a new connection each time until told to stop; gives what went wrong. */
function visit(halley) {
  const wrong = [];
  let over = false;
  let answered = 0;
  const ask = async (url) => {
    while (!over) {
      try {
        const response = await fetch(url, { method: 'OPTIONS', headers: { connection: 'close' } });
        if (response.status === 204) answered += 1;
        else wrong.push(response.status);
        await response.arrayBuffer();
      } catch (error) {
        wrong.push(error.cause?.code ?? error.message);
      }
      await sleep(1);
    }
  };
  const all = [1, 2, 3, 4].map(() => ask(`${halley.publicUrl}/v1/stream`));
  return async () => {
    over = true;
    await Promise.all(all);
    return { answered, wrong };
  };
}

test('another number of workers: streams end over drain.time, nobody is refused', async () => {
  const halley = await start({ settings });
  let visited = async () => {};
  try {
    const names = ['sse', 'ndjson', 'ws'];
    const streams = await Promise.all(Array.from({ length: STREAMS }, (_, n) =>
      open[names[n % 3]](halley, `r${n}`)));
    await Promise.all(streams.map((stream) => stream.place()));
    const edge = halley.edgePid();
    visited = visit(halley);
    await halley.killBrain();
    halley.settings.HALLEY_EDGE_WORKERS = '2';
    const ends = streams.map(async (stream) => {
      await stream.ended(60_000);
      return Date.now();
    });
    // A slow machine may be ready only when the old edge has gone.
    const both = until('it drains beside the new one', () => {
      const edges = halley.edgePids();
      return edges.length === 2 && edges.includes(edge);
    }, 60_000);
    await Promise.all([halley.start(), both]);
    // Whoever is there still has what is published now; whoever isn't gets it by the cursor.
    const last = STREAMS - 1;
    await publish(halley, `r${last}`, 'meanwhile');
    const times = (await Promise.all(ends)).sort((a, b) => a - b);
    assert.ok(times.at(-1) - times[0] > SPREAD_MS, `spread: ${times.at(-1) - times[0]} ms`);
    await until('the old edge is gone', () => !isAlive(edge), 20_000);
    const { answered, wrong } = await visited();
    assert.deepEqual(wrong, [], `beside ${answered} answers`);
    assert.ok(answered > 0);
    const live = streams[last].events.drain().map((event) => event.data);
    if (live.length === 0) {
      const again = await open.ndjson(halley, `r${last}`, {}, streams[last].cursor);
      live.push((await again.event()).data);
      again.close();
    }
    assert.deepEqual(live, ['meanwhile']);

    // The new edge is found by the next brain, whatever names the old one removed.
    const stays = await sse(halley, 'ann');
    const next = halley.edgePid();
    await halley.killBrain();
    await halley.start();
    assert.equal(halley.edgePid(), next);
    await publish(halley, 'ann', 1);
    assert.equal((await stays.event()).data, 1);
    assert.equal((await api(halley, 'GET', '/readyz')).status, 200);
    stays.close();
  } finally {
    await visited();
    await halley.stop();
  }
});
