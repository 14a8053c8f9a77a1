// Publishing about the graph's users at rising rates until it isn't held, then as much as goes,
// then half of that; and single POSTs, as many as are answered.

import { sleep } from '../../test/lib/wait.mjs';
import { MOST } from '../lib/groups.mjs';
import { load } from '../lib/load.mjs';
import { cpuDuring } from '../lib/process.mjs';
import { fixed, whole } from '../lib/words.mjs';

/** Deliveries per second of the first rate. */
const RATE_FIRST = 16_000;
const RATES_MAX = 12;
/** Between two stretches, and after publishing until all must have come. */
const SETTLE_MS = 1_000;
/** Open loop: small batches on a few connections, so that requests aren't what is measured. */
const BATCH = 8;
const CONNECTIONS = 32;
/** A connection's next POST as soon as the last is answered. */
const POSTS = ['--closed', '--connections', '64'];
/** A rate is held if events and deliveries come as asked, and this is kept. */
const HELD_P99_MS_MAX = 500;
const HELD_SHARE_MIN = 0.99;

/** So many deliveries a second; each user has `degree` followers on average, and follows itself. */
function paceOf({ degree }, deliveriesPerS) {
  const eventsPerS = deliveriesPerS / (degree + 1);
  return ['--rate', `${eventsPerS}`, '--connections', `${CONNECTIONS}`, '--batch', `${BATCH}`];
}

/** One stretch: at a pace, or as much as goes. */
async function stretch(stage, pace, deliveriesPerS) {
  const { plan, recorder } = stage;
  await recorder.unlessStopped(sleep(SETTLE_MS));
  await stage.clients.ask('mark stretch');
  const heartbeats = async () => sumOf(await stage.metrics(), 'halley_edge_heartbeats_total');
  const before = await heartbeats();
  const began = recorder.seconds;
  const { result: published, cpu } = await recorder.unlessStopped(cpuDuring(stage.halley,
    async () => {
      const figures = await load('publish', '--url', stage.halley.apiUrl, '--sched-batch',
        '--subjects', `uniform:1-${plan.connections}`, '--seconds', `${plan.seconds}`, ...pace);
      await sleep(SETTLE_MS);
      return figures;
    }));
  const beats = (await heartbeats() - before) / (recorder.seconds - began);
  const received = await stage.clients.ask('report');
  const seconds = (received.last_event_ns - received.first_event_ns) / 1e9;
  return { asked_per_s: deliveriesPerS ?? null, per_s: seconds > 0 ? received.events / seconds : 0,
    heartbeats_per_s: beats, published, received, cpu };
}

/** Sums a metric over its labels. */
export const sumOf = (values, name) => Object.entries(values)
  .filter(([key]) => key === name || key.startsWith(`${name}{`))
  .reduce((sum, [, value]) => sum + value, 0);

function isHeld({ published, received }, seconds) {
  const { rate, accepted, refused, requests_unsent: unsent, requests_broken: broken } = published;
  return refused + unsent + broken === 0 && accepted >= rate * seconds * HELD_SHARE_MIN
    && received.events >= published.sessions * HELD_SHARE_MIN
    && received.latency_ms.p99 <= HELD_P99_MS_MAX;
}

function describe({ per_s: perS, received, heartbeats_per_s: beats }) {
  const { p50, p99 } = received.latency_ms;
  return `${whole(perS)} deliveries/s, p50 ${fixed(p50, 1)}, p99 ${fixed(p99, 1)} ms`
    + `${beats > 1 ? `, and ${whole(beats)} heartbeats/s` : ''}`;
}

export async function rates(stage) {
  const { plan, recorder } = stage;
  const rising = [];
  for (let rate = RATE_FIRST; rising.length < RATES_MAX; rate *= plan.factor) {
    recorder.mark(`${whole(rate)} deliveries/s asked`);
    const result = await stretch(stage, paceOf(plan, rate), rate);
    const held = isHeld(result, plan.seconds);
    rising.push({ ...result, held });
    stage.say(`${describe(result)}: ${held ? 'held' : 'not held'}`);
    if (!held) break;
  }
  recorder.mark('as many deliveries as go through');
  const most = await stretch(stage,
    ['--closed', '--connections', `${MOST.connections}`, '--batch', `${MOST.batch}`]);
  stage.say(describe(most));
  recorder.mark(`half of that: ${whole(most.per_s / 2)} deliveries/s`);
  const half = await stretch(stage, paceOf(plan, most.per_s / 2), most.per_s / 2);
  stage.say(describe(half));
  recorder.mark('single POSTs');
  const posts = await stretch(stage, POSTS);
  stage.say(`single POSTs: ${describe(posts)}`);
  return { rising, most, half, posts };
}
