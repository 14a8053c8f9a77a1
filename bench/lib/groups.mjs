// The case that rivals are measured in: subjects with 16 followers, each follower connected once,
// over SSE. In one run: idle memory, a fixed rate of single POSTs, the most that goes through by
// single POSTs and in batches, and the machine's floor in turns with them.

import { join } from 'node:path';
import { request } from 'node:http';
import { readFileSync } from 'node:fs';
import { sleep } from '../../test/lib/wait.mjs';
import { FOLLOWERS } from './crowd.mjs';
import { Clients, load } from './load.mjs';
import { cpuDuring, pssBytes } from './process.mjs';
import { say } from './say.mjs';
import { address } from './tls.mjs';

/** 64,000 deliveries/s. */
export const EVENTS_PER_S = 4_000;
const SETTLE_MS = 3_000;
/** Batches for the most that goes through: enough events in flight for writes to gather. */
export const MOST = { connections: 16, batch: 256 };
/** Single POSTs, each as soon as the one before it is answered. */
const SINGLE_CONNECTIONS = 64;
const FLOOR_SECONDS = 8;

export async function groups(halley, plan, folder) {
  const count = Math.ceil(plan.connections / FOLLOWERS);
  const file = join(folder, 'groups.txt');
  await load('graph', '--groups', `${count}`, '--size', `${FOLLOWERS}`, '--out', file);
  await post(`${halley.apiUrl}/v1/follows`, readFileSync(file));
  const edge = halley.edgePid();
  const before = pssBytes(edge);
  const clients = new Clients(...address(halley, plan), '--connections', `${plan.connections}`);
  const connected = await clients.ask('ready');
  await sleep(SETTLE_MS);
  const idle = pssBytes(edge);
  say(`groups: ${connected.connected} connected, ${Math.round(connected.connects_per_s)}/s`);

  const publish = (...args) => load('publish', '--url', halley.apiUrl,
    '--subjects', `groups:${count}`, ...args);
  const rated = [];
  const singles = [];
  const most = [];
  const floors = [];
  const paced = [];
  for (let round = 1; round <= plan.rounds; round += 1) {
    say(`groups: round ${round} of ${plan.rounds}: ${EVENTS_PER_S} events/s, single POSTs`);
    rated.push(await window(halley, clients, () => publish('--rate', `${EVENTS_PER_S}`,
      '--seconds', `${Math.round(plan.seconds / plan.rounds)}`)));
    say(`groups: round ${round} of ${plan.rounds}: single POSTs, as many as go through`);
    singles.push(await window(halley, clients, () => publish('--closed',
      '--connections', `${SINGLE_CONNECTIONS}`,
      '--seconds', `${Math.round(plan.seconds / plan.rounds)}`)));
    say(`groups: round ${round} of ${plan.rounds}: as many as go through`);
    most.push(await window(halley, clients, () => publish('--closed',
      '--connections', `${MOST.connections}`, '--batch', `${MOST.batch}`,
      '--seconds', `${Math.round(plan.seconds / plan.rounds)}`)));
    const bytes = Math.round(most.at(-1).received.bytes / most.at(-1).received.events);
    say(`groups: round ${round} of ${plan.rounds}: the floor, ${bytes} bytes a send`);
    floors.push(await load('floor', '--connections', `${plan.connections}`,
      '--threads', `${plan.workers}`, '--bytes', `${bytes}`, '--seconds', `${FLOOR_SECONDS}`));
    paced.push(await load('floor', '--connections', `${plan.connections}`,
      '--threads', `${plan.workers}`, '--bytes', `${bytes}`, '--seconds', `${FLOOR_SECONDS}`,
      '--rate', `${EVENTS_PER_S * FOLLOWERS}`));
  }
  const after = pssBytes(edge);
  await clients.quit();
  return { connected, edge_bytes: { before, idle, after }, rated, singles, most, floors, paced };
}

/** One stretch of publishing: what was published, what was received, what it cost. */
export async function window(halley, clients, publish) {
  await sleep(SETTLE_MS);
  await clients.ask('mark window');
  const { result: published, cpu } = await cpuDuring(halley, async () => {
    const result = await publish();
    await sleep(1_000);
    return result;
  });
  return { published, received: await clients.ask('report'), cpu };
}

export function post(url, body) {
  return new Promise((resolve, reject) => {
    const outgoing = request(url, { method: 'POST', headers: { 'content-type': 'text/plain' } },
      (answer) => {
        answer.resume();
        answer.once('end', () => (answer.statusCode === 200 ? resolve()
          : reject(new Error(`POST ${url}: ${answer.statusCode}`))));
      });
    outgoing.once('error', reject);
    outgoing.end(body);
  });
}
