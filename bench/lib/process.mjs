// Memory and processor time of a process, as the kernel counts them.

import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';

const TICKS_PER_S = Number(execFileSync('getconf', ['CLK_TCK'], { encoding: 'utf8' }));

/** Proportional set size in bytes. */
export function pssBytes(pid) {
  const rollup = readFileSync(`/proc/${pid}/smaps_rollup`, 'utf8');
  return Number(/^Pss:\s+(\d+) kB$/m.exec(rollup)[1]) * 1024;
}

/** Seconds of processor time so far, in user and kernel mode. */
export function cpuSeconds(pid) {
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  return (Number(fields[11]) + Number(fields[12])) / TICKS_PER_S;
}

/** Processor seconds of brain and edge while `work` runs. */
export async function cpuDuring(halley, work) {
  const pids = { brain: halley.brainPid(), edge: halley.edgePid() };
  const read = () => ({ brain: cpuSeconds(pids.brain), edge: cpuSeconds(pids.edge) });
  const before = read();
  const result = await work();
  const after = read();
  return { result, cpu: { brain: after.brain - before.brain, edge: after.edge - before.edge } };
}
