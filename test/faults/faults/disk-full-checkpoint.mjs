// The disk is full for a moment while an idle checkpoint of the follows is written.

import { sleep } from '../../lib/wait.mjs';
import { isWriting, startAnew, whileFull } from '../lib/disk.mjs';

export default {
  name: 'disk-full-checkpoint', lane: 'server', weight: 16, needs: 'small', seconds: 7,
  effects: { fills: true, kills: true, closes: true },
  async inject(world, random) {
    await world.graph.import(45_000);
    world.follows.beQuiet(8_000);
    await sleep(random.int(0, 2_000));
    const left = random.pick([0, 30_000, 100_000, 300_000]);
    await whileFull(world, left, () => sleep(5_500));
    world.follows.beLoud();
    await isWriting(world);
    for (let n = 0; n < 5; n += 1) await world.graph.stir();
    return `${left} bytes left, ${await startAnew(world, random)}`;
  },
};
