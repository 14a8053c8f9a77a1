// Clients that take their time: a byte of a head, or of a body, now and then. How much do the
// others notice? Streams of honest users get events at a fixed rate, without the slow ones and
// with them in turns.

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { sleep } from '../../test/lib/wait.mjs';
import { FOLLOWERS, metrics } from './crowd.mjs';
import { post, window } from './groups.mjs';
import { Clients, begin, load } from './load.mjs';
import { say } from './say.mjs';
import { fixed, latencies, median, whole } from './words.mjs';

const SLOW = 10_000;
/** Of these, how many send a body. */
const BODIES = 1_000;
/** Between two bytes of one of them. */
const EVERY_MS = 5_000;
/** 8,000 deliveries/s. */
const EVENTS_PER_S = 500;
/** Until all of them have come and begun, and longer than the time between two STATS. */
const BEGUN_MS = 2 * EVERY_MS + 3_000;
/** Until what they left is cleared away. */
const GONE_MS = 4_000;

export async function slowloris(halley, plan, folder) {
  const count = Math.ceil(plan.connections / FOLLOWERS);
  const file = join(folder, 'groups.txt');
  await load('graph', '--groups', `${count}`, '--size', `${FOLLOWERS}`, '--out', file);
  await post(`${halley.apiUrl}/v1/follows`, readFileSync(file));
  const clients = new Clients('--url', halley.publicUrl, '--connections', `${plan.connections}`);
  const connected = await clients.ask('ready');
  const seconds = Math.max(1, Math.round(plan.seconds / plan.rounds));
  const publish = () => load('publish', '--url', halley.apiUrl, '--subjects', `groups:${count}`,
    '--rate', `${EVENTS_PER_S}`, '--seconds', `${seconds}`);
  const without = [];
  const beside = [];
  const quiet = async () => without.push(await window(halley, clients, publish));
  // What comes first meets another Halley than what comes second: they change places.
  for (let round = 1; round <= plan.rounds; round += 1) {
    say(`slowloris: round ${round} of ${plan.rounds}`);
    if (round % 2 === 1) await quiet();
    beside.push(await besideSlow(halley, clients, publish, seconds));
    if (round % 2 === 0) await quiet();
  }
  const { received: all } = beside.at(-1);
  await clients.quit();
  return { connected, slow: SLOW, bodies: BODIES, every_ms: EVERY_MS, seconds, without, beside,
    still_connected: all.connected };
}

async function besideSlow(halley, clients, publish, seconds) {
  const slow = begin('slowloris', '--url', halley.publicUrl, '--bodies-url', halley.apiUrl,
    '--connections', `${SLOW}`, '--bodies', `${BODIES}`, '--every-ms', `${EVERY_MS}`,
    '--seconds', `${BEGUN_MS / 1000 + 4 * seconds + 30}`);
  await sleep(BEGUN_MS);
  const measured = await window(halley, clients, publish);
  const counted = await metrics(halley);
  const held = await slow.stop();
  await sleep(GONE_MS);
  const gauge = (name) => counted[`halley_edge_${name}`] ?? null;
  return { ...measured, held, pending: gauge('pending_connections'),
    connections: gauge('connections'), slow_bodies: gauge('slow_bodies_total'),
    timeouts: gauge('timeouts_total') };
}

export function slowlorisRows(plan, measured) {
  const { without, beside, connected, still_connected: still, ...rest } = measured;
  const latency = (windows) => latencies(windows.map(({ received }) => received.latency_ms));
  const ratio = (name) => fixed(median(beside.map(({ received }, round) =>
    received.latency_ms[name] / without[round].received.latency_ms[name])));
  const middle = (of) => whole(median(beside.map(of)));
  const share = (windows) => `${fixed(100 * median(windows.map(({ cpu }) =>
    cpu.edge / (rest.seconds + 1))), 1)} %`;
  return [
    ['honest streams, events/s to them', `${whole(plan.connections)}, ${EVENTS_PER_S}`, ''],
    ['slow connections: heads, bodies, a byte each every',
      `${whole(rest.slow - rest.bodies)}, ${whole(rest.bodies)}, ${rest.every_ms / 1000} s`, ''],
    ['of them at the edge without a whole head, at the end of a window',
      middle(({ pending }) => pending), ''],
    ['latency without them, p50 / p99', latency(without), ''],
    ['beside them', latency(beside), ''],
    ['p99 beside them to p99 without, median of the rounds', ratio('p99'), 'at most 1.20'],
    ['p50', ratio('p50'), ''],
    ['the edge, processors without them, beside them', `${share(without)}, ${share(beside)}`, ''],
    ['slow ones told 408 in a round', middle(({ held }) => held.statuses[408] ?? 0), ''],
    ['honest streams connected at first, in the end',
      `${whole(connected.connected)}, ${whole(still)}`, 'the same'],
  ];
}
