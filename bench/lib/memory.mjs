// The brain's memory for an event within the retention: the slope over many events.

import { execFileSync } from 'node:child_process';
import { sleep } from '../../test/lib/wait.mjs';
import { metrics } from './crowd.mjs';
import { load } from './load.mjs';
import { pssBytes } from './process.mjs';
import { say } from './say.mjs';
import { fixed, whole } from './words.mjs';

const STEPS = 10;
const EVENT_BYTES = 1_024;
const BATCH = 256;
const CONNECTIONS = 16;
const SECONDS_MAX = 300;
/** For garbage of the last events to be collected and for what was grown to be given back. */
const SETTLE_MS = 4_000;
const KINDS = ['total', 'binary', 'ets', 'processes', 'system'];

export const memorySettings = { HALLEY_HISTORY_RETENTION: '1h', HALLEY_HISTORY_BYTES: '8GB' };

export async function historyMemory(halley, plan) {
  // One step first, uncounted: what the first events of all make the node allocate isn't theirs.
  const step = Math.ceil(plan.events / STEPS);
  await publish(halley, step);
  const samples = [await sample(halley, step)];
  for (let done = 1; done <= STEPS; done += 1) {
    await publish(halley, step);
    samples.push(await sample(halley, step * (done + 1)));
    say(`history-memory: ${whole(step * done)} events, ${whole(samples.at(-1).total / 1e6)} MB`);
  }
  const disk = execFileSync('du', ['-sb', `${halley.folder}/data`], { encoding: 'utf8' });
  return { samples, disk_bytes: Number(disk.split('\t')[0]) };
}

function publish(halley, events) {
  return load('publish', '--url', halley.apiUrl, '--closed', '--connections', `${CONNECTIONS}`,
    '--batch', `${BATCH}`, '--bytes', `${EVENT_BYTES}`, '--events', `${events}`,
    '--seconds', `${SECONDS_MAX}`, '--subjects', 'groups:1000');
}

async function sample(halley, events) {
  await sleep(SETTLE_MS);
  const values = await metrics(halley);
  const kinds = KINDS.map((kind) => [kind, values[`halley_vm_memory_bytes{kind="${kind}"}`]]);
  return { events: values.halley_events_published_total ?? events,
    pss: pssBytes(halley.brainPid()), ...Object.fromEntries(kinds) };
}

/** Bytes per event: least squares over the samples. */
export function slope(samples, kind) {
  const mean = (of) => samples.reduce((sum, one) => sum + of(one), 0) / samples.length;
  const [x, y] = [mean(({ events }) => events), mean((one) => one[kind])];
  const over = mean((one) => (one.events - x) * (one[kind] - y));
  return over / mean(({ events }) => (events - x) ** 2);
}

export function memoryRows(plan, { samples, disk_bytes: disk }) {
  const events = samples.at(-1).events;
  return [
    ['**Memory of the history**', `${whole(events)} events of ${EVENT_BYTES} bytes`, ''],
    ['brain memory per event (Erlang, total)',
      `${fixed(slope(samples, 'total'), 1)} bytes`, '≤ 64'],
    ['the same: ets, binaries, processes', ['ets', 'binary', 'processes']
      .map((kind) => fixed(slope(samples, kind), 1)).join(', '), ''],
    ['brain memory per event (PSS)', `${fixed(slope(samples, 'pss'), 1)} bytes`, ''],
    ['on disk per event', `${whole(disk / events)} bytes`, ''],
  ];
}
