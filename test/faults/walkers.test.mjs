// A walk through the past ends where nothing new is, and not where a poll gave up its replay.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import test from 'node:test';
import { History } from './lib/history.mjs';
import { Random } from './lib/random.mjs';
import { Walkers } from './lib/walkers.mjs';
import { sleep } from '../lib/wait.mjs';

/** What the walkers see of a Halley whose polls are answered like this, one after the other. */
async function walked(polls, history = new History({})) {
  const server = createServer(async (request, response) => {
    const isPage = !request.url.startsWith('/v1/poll');
    const { heldMs = 0, ids = [], fault } = isPage ? {} : polls.shift();
    await sleep(heldMs);
    if (fault) history.faultEnded(fault);
    const events = ids.map((id) => ({ id }));
    response.end(JSON.stringify({ events, gaps: [], next: null, cursor: 'c' }));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address();
  const walkers = new Walkers({ history, publicPort: port, apiUrl: `http://127.0.0.1:${port}`,
    headers: {}, isOver: false, isDark: false, publisher: { check: (event) => event },
    wrong: assert.fail }, new Random(1));
  await walkers.last(['news']);
  walkers.close();
  server.close();
  return history.walks[0].entries.map(({ id }) => id);
}

test('a poll that was held and brings nothing is asked again', async () => {
  assert.deepEqual(await walked([{ ids: ['e1'] }, {}]), ['e1']);
  assert.deepEqual(await walked([{ heldMs: 1_000 }, { ids: ['e1'] }, {}]), ['e1']);
});

test('a poll that brings nothing while the edge stops is asked again', async () => {
  const history = new History({});
  const fault = history.faultBegun('drain', { closes: true });
  assert.deepEqual(await walked([{}, { ids: ['e1'], fault }, {}], history), ['e1']);
});
