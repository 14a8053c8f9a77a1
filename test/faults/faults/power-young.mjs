// The power goes soon after the first checkpoint of a new folder: files that were made since the
// start may not have reached the disk, while others already rely on them.

import { sleep } from '../../lib/wait.mjs';
import { idleCheckpoint } from '../lib/disk.mjs';

export default {
  name: 'power-young', lane: 'server', weight: 1_000, needs: 'young',
  effects: { kills: true, closes: true, links: true, power: true },
  async inject(world, random) {
    await idleCheckpoint(world, random);
    const ms = random.int(0, 9_000);
    await sleep(ms);
    const note = await world.cutPower(random);
    await world.server.startBrain();
    world.follows.beLoud();
    return `${ms} ms after the checkpoint, ${note}`;
  },
};
