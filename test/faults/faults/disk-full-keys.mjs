// Server keys are made and revoked on a full disk: what a command said it did, it did.

import { isWriting, whileFull } from '../lib/disk.mjs';

export default {
  name: 'disk-full-keys', lane: 'server', weight: 6, needs: 'small', effects: { fills: true },
  async inject(world, random) {
    await whileFull(world, random.pick([0, 0, 4_096]), async () => {
      for (let n = 0; n < 3; n += 1) await world.keys.change(random);
      await world.keys.check();
    });
    await isWriting(world);
  },
};
