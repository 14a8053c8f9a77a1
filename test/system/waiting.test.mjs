// http.md 13.7, from outside: the brain dies while clients open streams and events are published.
// No stream is refused, all of them open soon after its return, and those that were there stay.

import assert from 'node:assert/strict';
import { after, before } from 'node:test';
import { api, follow } from '../lib/client.mjs';
import { start, test } from '../lib/halley.mjs';
import { metric } from '../lib/metrics.mjs';
import { closeStreams, ndjson, sse, ws } from '../lib/streams.mjs';
import { sleep, until } from '../lib/wait.mjs';

const LIVE = 10;
const NEWCOMERS = 240;
const BETWEEN_MS = 15;
const KILLED_AFTER = 40;
/** The brain is away for longer than a stream may wait for its session while there is one. */
const AWAY_MS = 2_000;
/** It may take long to start on a machine that has much else to do. */
const LIMITS = { HALLEY_LIMITS_STREAM_OPEN_MS_MAX: '1000',
  HALLEY_LIMITS_BRAIN_AWAY_MS_MAX: '60000' };
const KINDS = [sse, ndjson, ws];

let halley;
before(async () => {
  halley = await start({ settings: LIMITS });
});
after(async () => {
  closeStreams();
  await halley?.stop();
});

/** Publishes numbers until `isOver`, each until it is acknowledged; gives how many there were. */
async function publishUntil(isOver) {
  let number = 0;
  while (!isOver()) {
    const answer = await api(halley, 'POST', '/v1/events', { subject: 'news', data: number });
    if (answer.status === 200) number += 1;
    else assert.equal(answer.status, 503, answer.body);
    await sleep(BETWEEN_MS);
  }
  return number;
}

/** Opens streams one after the other, without waiting for their answers. */
async function openAll(opened) {
  for (let n = 0; n < NEWCOMERS; n += 1) {
    opened.push(KINDS[n % KINDS.length](halley, `new${n}`)
      .catch((error) => ({ refusal: error.message })));
    await sleep(BETWEEN_MS);
  }
}

test('kill -9 of the brain while clients open: none is refused, and events go on', async () => {
  const users = [...Array(LIVE).keys()].map((n) => `live${n}`);
  await follow(halley, ...users.map((user) => [user, 'news']));
  const live = await Promise.all(users.map((user, n) => KINDS[n % KINDS.length](halley, user)));
  let isOver = false;
  const publishing = publishUntil(() => isOver);
  const opened = [];
  const opening = openAll(opened);
  await until('some are open', () => opened.length > KILLED_AFTER);
  await halley.killBrain();
  await sleep(AWAY_MS);
  await halley.start();
  const back = Date.now();
  await opening;
  const streams = await Promise.all(opened);
  // A WebSocket that is open has no status.
  const refused = streams.filter(({ status, refusal }) => refusal || (status ?? 200) !== 200);
  assert.deepEqual(refused.map(({ status, refusal }) => refusal ?? status), [], 'refused streams');
  assert.ok(Date.now() - back < 10_000, 'they open within seconds of its return');
  await until('each of them is a session', async () =>
    await metric(halley, 'halley_sessions') === LIVE + NEWCOMERS);
  isOver = true;
  const count = await publishing;
  for (const stream of live) {
    let next = 0;
    while (next < count) {
      const event = await stream.event();
      // An event may have been published without its answer coming back, and then again.
      assert.ok(event.data === next || event.data === next - 1, `${event.data}, not ${next}`);
      next = event.data + 1;
    }
    assert.ok(!stream.isClosed, 'the same connection');
  }
  // A brain has the edge's numbers once the edge has sent them, a second later at most.
  await until('the edge has sent its numbers', async () => {
    const { body } = await api(halley, 'GET', '/metrics');
    return body.includes('halley_edge_brain_away_waits_total');
  });
  assert.ok(await metric(halley, 'halley_edge_brain_away_waits_total') > 0, 'some waited');
  assert.equal(await metric(halley, 'halley_edge_brain_away_total'), 0);
});
