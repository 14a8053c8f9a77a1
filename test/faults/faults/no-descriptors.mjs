// No descriptor is left for the brain, or for the edge: what is open stays, nothing more can be
// opened. A segment of the log, a checkpoint and a connection have to wait, or are refused.

import { execFileSync } from 'node:child_process';
import { sleep } from '../../lib/wait.mjs';
import { isWriting, press } from '../lib/disk.mjs';

const ENOUGH = 4_096;
/** An idle checkpoint has begun, and failed, by then. */
const IDLE_MS = 6_000;

/** Of a process that may be gone. */
function limit(pid, descriptors) {
  try {
    execFileSync('prlimit', [`--pid=${pid}`, `--nofile=${descriptors}:`], { stdio: 'ignore' });
  } catch {
    // another one has its own
  }
}

/** What is asked for meanwhile. */
const MOMENTS = {
  rest: (world, random) => sleep(random.int(100, 4_000)),
  press: (world, random) => press(world, random.int(100, 4_000), random),
  async idle(world) {
    world.follows.beQuiet(IDLE_MS);
    await sleep(IDLE_MS);
    world.follows.beLoud();
  },
};

export default {
  name: 'no-descriptors', lane: 'server', weight: 4, effects: { fills: true, closes: true },
  async inject(world, random) {
    const { halley } = world.server;
    const which = random.pick(['brain', 'brain', 'edge', 'both']);
    const moment = world.graph ? random.pick(Object.keys(MOMENTS)) : 'rest';
    if (moment === 'idle') await world.graph.import(45_000);
    const pids = [...which === 'edge' ? [] : [halley.brainPid()],
      ...which === 'brain' ? [] : halley.edgePids()];
    for (const pid of pids) limit(pid, 3);
    await MOMENTS[moment](world, random);
    for (const pid of pids) limit(pid, ENOUGH);
    await isWriting(world);
    return `${which}, ${moment}`;
  },
};
