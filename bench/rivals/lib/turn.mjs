// One turn of one server: it is started, clients connect, it is published at the rate that all are
// compared at, then as much as goes through; and it is ended. Alone on the machine, so the others'
// pings and timers are not in its figures.

import { readFileSync } from 'node:fs';
import { FOLLOWERS } from '../../lib/crowd.mjs';

import { Clients, load } from '../../lib/load.mjs';
import { cpuSeconds, pssBytes } from '../../lib/process.mjs';
import { say } from '../../lib/say.mjs';
import { sleep } from '../../../test/lib/wait.mjs';
import { channels } from './channels.mjs';

const SETTLE_MS = 3_000;
/** Between two looks whether deliveries still come. */
const LOOK_MS = 250;
/** A server that is behind when publishing ends may go on for so long. */
const DRAIN_MS_MAX = 15_000;
/** A rate is held if this share of it came through, and nobody waited longer than this. */
const HELD_SHARE_MIN = 0.97;
const HELD_P99_MS_MAX = 1_000;
/** A server that doesn't hold the common rate is asked for this share of what came through. */
const SHARE_OF_TRIED = 0.75;
const FLOOR_SECONDS_MAX = 8;

/** Deliveries per second, over the time in which there were any. */
export const rateOf = ({ received }) => received.events
  / Math.max(1e-9, (received.last_event_ns - received.first_event_ns) / 1e9);
export const cpuPerMillion = ({ cpu, received }) => (cpu / received.events) * 1e6;

const sum = (pids, of) => pids.reduce((total, pid) => total + of(pid), 0);

/** Memory of the server in all and by part, if it has parts, and the kernel's. */
export function memory(server) {
  const parts = Object.entries(server.parts?.() ?? {});
  return { pss: sum(server.pids(), pssBytes), slab: slabBytes(),
    parts: Object.fromEntries(parts.map(([name, pid]) => [name, pssBytes(pid)])) };
}

function slabBytes() {
  return Number(/^Slab:\s+(\d+) kB$/m.exec(readFileSync('/proc/meminfo', 'utf8'))[1]) * 1024;
}

/** The report of a window, once nothing comes any more. */
async function drained(clients) {
  const end = Date.now() + DRAIN_MS_MAX;
  let last = await clients.ask('report');
  for (;;) {
    await sleep(LOOK_MS);
    const report = await clients.ask('report');
    if (report.events === last.events || Date.now() > end) return report;
    last = report;
  }
}

/** One stretch of publishing: what was published, what was received, what it cost the server. */
export async function window(server, clients, plan, ...how) {
  await clients.ask('mark window');
  const pids = server.pids();
  const before = sum(pids, cpuSeconds);
  const published = await load('publish', ...server.publish, ...how,
    '--subjects', `groups:${channels(plan.connections)}`, '--seconds', `${plan.seconds}`);
  const received = await drained(clients);
  const cpu = sum(pids, cpuSeconds) - before;
  return { published, received, cpu, due: published.accepted * FOLLOWERS };
}

const atRate = (server, clients, plan, eventsPerS) =>
  window(server, clients, plan, '--rate', `${eventsPerS}`);

/** Whether a window at a rate shows a server that keeps up with it. */
export function isHeld(tried, eventsPerS) {
  return rateOf(tried) >= eventsPerS * FOLLOWERS * HELD_SHARE_MIN
    && tried.received.latency_ms.p99 <= HELD_P99_MS_MAX;
}

/** The common rate; where a server doesn't hold it, what it does hold, measured anew. */
async function rated(server, clients, plan, name) {
  const tried = await atRate(server, clients, plan, plan.rate);
  await sleep(SETTLE_MS);
  say(`${name}: as much as goes through`);
  const most = await window(server, clients, plan, '--closed',
    ...(server.most ?? ['--connections', `${plan.publishers}`]));
  const isAtRate = isHeld(tried, plan.rate);
  if (isAtRate) return { rated: { ...tried, events_per_s: plan.rate }, most, tried };
  const lower = Math.max(1, Math.floor((rateOf(tried) / FOLLOWERS) * SHARE_OF_TRIED));
  await sleep(SETTLE_MS);
  say(`${name}: ${plan.rate} events/s are too many; ${lower}`);
  const held = await atRate(server, clients, plan, lower);
  return { rated: { ...held, events_per_s: lower }, most, tried };
}

/** What the table is made of, for one server in one round. */
export async function turn(name, rival, plan) {
  say(`${name}: starting`);
  const server = await rival.start(plan);
  try {
    await sleep(SETTLE_MS);
    const before = memory(server);
    await server.follow?.();
    const clients = new Clients(...server.clients, '--connections', `${plan.connections}`,
      '--group-size', `${FOLLOWERS}`);
    try {
      const connected = await clients.ask('ready');
      if (connected.connected !== plan.connections) {
        throw new Error(`only ${connected.connected} of ${plan.connections} connected`);
      }
      say(`${name}: ${connected.connected} connected, ${Math.round(connected.connects_per_s)}/s`);
      await sleep(SETTLE_MS);
      const idle = memory(server);
      say(`${name}: ${plan.rate} events/s`);
      const windows = await rated(server, clients, plan, name);
      return { connected, before, idle, ...windows };
    } finally {
      await clients.quit();
    }
  } finally {
    await server.stop();
  }
}

/** What the machine can do at best in this round, and what it costs at the common rate. */
export async function floor(plan) {
  const run = (...more) => load('floor', '--connections', `${plan.connections}`,
    '--threads', `${plan.workers}`, '--bytes', `${plan.bytes}`,
    '--seconds', `${Math.min(FLOOR_SECONDS_MAX, plan.seconds)}`, ...more);
  say('floor: bare sends');
  return { most: await run(), rated: await run('--rate', `${plan.rate * FOLLOWERS}`) };
}

