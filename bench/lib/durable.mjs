// The price of an acknowledgement: publishers that each wait for the answer before the next event,
// answered when the event is on disk, and in turns with that when it is on its way in memory.

import { closeSync, fdatasyncSync, openSync, rmSync, statfsSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { sleep } from '../../test/lib/wait.mjs';
import { metrics } from './crowd.mjs';
import { load } from './load.mjs';
import { cpuDuring } from './process.mjs';
import { say } from './say.mjs';
import { fixed, latencies, median, whole } from './words.mjs';

const SUBJECTS = 1_000;
const SETTLE_MS = 1_000;
const FLOOR_MS = 1_000;
/** What a group of 64 events of this benchmark is on disk, about. */
const GROUP_BYTES = 16_384;

export async function durable(halley, plan) {
  const rounds = [];
  for (let round = 1; round <= plan.rounds; round += 1) {
    const result = { floor: syncsPerS(halley.folder) };
    // Whoever goes first has the quieter machine: they change places.
    for (const ack of round % 2 ? ['disk', 'memory'] : ['memory', 'disk']) {
      say(`durable: round ${round} of ${plan.rounds}: ${plan.publishers} publishers, ack ${ack}`);
      await sleep(SETTLE_MS);
      const before = await metrics(halley);
      const { result: published, cpu } = await cpuDuring(halley, () => load('publish',
        '--url', halley.apiUrl, '--publishers', `${plan.publishers}`, '--ack', ack,
        '--seconds', `${Math.max(1, Math.round(plan.seconds / plan.rounds))}`,
        '--subjects', `groups:${SUBJECTS}`));
      const after = await metrics(halley);
      const grown = (name) => after[name] - before[name];
      result[ack] = { published, cpu, commits: grown('halley_history_commits_total'),
        written: grown('halley_history_events_written_total') };
    }
    rounds.push(result);
  }
  return { filesystem: `0x${statfsSync(halley.folder).type.toString(16)}`, rounds };
}

/** How often the disk syncs as many bytes as a group of events has, by a bare loop. */
function syncsPerS(folder) {
  const path = join(folder, 'floor');
  const file = openSync(path, 'w');
  const bytes = Buffer.alloc(GROUP_BYTES, 'x');
  const began = Date.now();
  let syncs = 0;
  for (; Date.now() - began < FLOOR_MS; syncs += 1) {
    writeSync(file, bytes);
    fdatasyncSync(file);
  }
  const perS = syncs / ((Date.now() - began) / 1000);
  closeSync(file);
  rmSync(path);
  return perS;
}

export function durableRows(plan, { rounds }) {
  const of = (ack, value) => median(rounds.map((round) => value(round[ack])));
  const rate = (ack) => of(ack, ({ published }) => published.events_per_s);
  const waited = (ack) => latencies(rounds.map((round) => round[ack].published.latency_ms));
  const syncs = of('disk', ({ commits, published }) => commits / published.seconds);
  const group = of('disk', ({ commits, written }) => written / commits);
  const cost = (ack) => of(ack, ({ cpu, published }) =>
    ((cpu.brain + cpu.edge) / published.accepted) * 1e6);
  return [
    ['**Acknowledged publishing**', `${plan.publishers} publishers, single requests`, ''],
    ['acknowledged at disk', `${whole(rate('disk'))}/s`, '≥ 10,000/s'],
    ['the same: request to answer p50 / p99', waited('disk'), ''],
    ['acknowledged in memory', `${whole(rate('memory'))}/s`, ''],
    ['the same: request to answer p50 / p99', waited('memory'), ''],
    ['disk to memory', fixed(rate('disk') / rate('memory')), ''],
    ['syncs/s at disk, events in each', `${whole(syncs)}, ${fixed(group, 1)}`, ''],
    ['floor: syncs/s of a bare loop', whole(median(rounds.map((round) => round.floor))), ''],
    ['processor seconds per million, disk and memory: brain + edge',
      `${fixed(cost('disk'))}, ${fixed(cost('memory'))}`, ''],
  ];
}
