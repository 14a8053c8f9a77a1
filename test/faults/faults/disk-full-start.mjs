// The brain starts on a full disk: it serves the stored data, refuses requests that need a write,
// and goes on by itself when there is room.

import { isServing, isWriting, press, startAnew, whileFull } from '../lib/disk.mjs';

const QUIET_MS = 20_000;

export default {
  name: 'disk-full-start', lane: 'server', weight: 16, needs: 'small',
  effects: { fills: true, kills: true, closes: true },
  async inject(world, random) {
    const { server } = world;
    if (random.chance(0.5)) await server.killBrain();
    else await server.halley.terminate('SIGTERM');
    if (random.chance(0.7)) world.follows.beQuiet(QUIET_MS);
    const left = random.pick([0, 0, 4_096, 20_000]);
    await whileFull(world, left, async () => {
      server.halley.spawn();
      await isServing(world);
      await world.graph.compare();
      await press(world, random.int(0, 1_500), random, random.pick([0, 1, 100]));
    });
    world.follows.beLoud();
    await isWriting(world);
    return `${left} bytes left, ${await startAnew(world, random)}`;
  },
};
