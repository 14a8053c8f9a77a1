// The brain dies in the middle of a checkpoint of the follows, or right after it.

import { idleCheckpoint } from '../lib/disk.mjs';

export default {
  name: 'kill-checkpoint', lane: 'server', weight: 4, needs: 'graph', seconds: 5,
  effects: { kills: true },
  async inject(world, random) {
    await idleCheckpoint(world, random);
    await world.server.killBrain();
    world.follows.beLoud();
    await world.server.startBrain();
  },
};
