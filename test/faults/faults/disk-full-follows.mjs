// The disk has no room, or little, while requests follow: a request is refused, or its follows
// stay. Follows of requests after there is room again stay all the more.

import { isWriting, press, startAnew, whileFull } from '../lib/disk.mjs';

const PRESS_MS_MAX = 4_000;

export default {
  name: 'disk-full-follows', lane: 'server', weight: 24, needs: 'small',
  effects: { fills: true, kills: true, closes: true },
  async inject(world, random) {
    const left = random.pick([0, 0, 4_096, 30_000, 100_000, 300_000, 1_000_000]);
    // Where few ask, the store can't be saved by its own end.
    if (random.chance(0.7)) world.follows.beQuiet(PRESS_MS_MAX);
    const most = random.pick([1, 1, 2, 4, 1_000]);
    await whileFull(world, left, () => press(world, random.int(300, PRESS_MS_MAX), random, most));
    world.follows.beLoud();
    await isWriting(world);
    for (let n = 0; n < 10; n += 1) await world.graph.stir();
    return `${left} bytes left, ${await startAnew(world, random)}`;
  },
};
