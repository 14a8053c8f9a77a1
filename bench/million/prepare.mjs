// Before a long run: is the machine fit for it, and what would make it so?

import { spawnSync } from 'node:child_process';
import { createInterface } from 'node:readline/promises';
import { writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { say } from '../lib/say.mjs';
import { findings } from './check.mjs';
import { facts } from './facts.mjs';

const TUNE = fileURLToPath(new URL('../tune.sh', import.meta.url));
/** How readily the kernel ends a process when memory is gone; 1000 is first of all. */
const OOM_SCORE = '700';

async function agrees(question) {
  if (!process.stdin.isTTY || !process.stderr.isTTY) return false;
  const asking = createInterface({ input: process.stdin, output: process.stderr });
  const answer = await asking.question(`${question} [y/N] `);
  asking.close();
  return /^y/i.test(answer);
}

/**
 * Says what is in the way of `connections`, offers to change it, and gives the facts. Throws if
 * something is left without which the run can't succeed.
 */
export async function prepareMachine({ connections, workers: workersOf, tune }) {
  // If memory runs out after all, it is this run that ends, not another program of the machine.
  writeFileSync('/proc/self/oom_score_adj', OOM_SCORE);
  let known = await facts();
  const look = () => [...findings(connections, workersOf(known), known)];
  let found = look();
  for (const { must, says } of found) say(`${must ? 'must change' : 'would help'}: ${says}`);
  const args = ['--connections', `${connections}`, '--apply'];
  if (found.some((finding) => finding.tune)) {
    const command = `bench/tune.sh ${args.join(' ')}`;
    if (!known.root) {
      say(`\`sudo ${command}\` does that, and \`--undo\` takes it back`);
    } else if (tune || await agrees(`Run ${command} now?`)) {
      const { status } = spawnSync(TUNE, args, { stdio: ['ignore', 2, 2] });
      if (status !== 0) throw new Error(`${command} failed`);
      known = await facts();
      found = look();
    } else {
      say(`\`${command}\` (or --tune here) does that, and \`--undo\` takes it back`);
    }
  }
  if (found.some((finding) => finding.must)) {
    throw new Error('the machine can\'t hold so many connections as it is; the reasons are above');
  }
  if (found.length === 0) say('limits, ports and sysctls are as they should be');
  return known;
}
