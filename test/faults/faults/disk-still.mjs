// The disk stands still: it answers nothing for a while, then everything. Lists are served and
// sessions live on meanwhile; requests that need a write are acknowledged late, or not.

import { sleep } from '../../lib/wait.mjs';
import { isServing, isWriting, press } from '../lib/disk.mjs';

export default {
  name: 'disk-still', lane: 'server', weight: 12, needs: 'power', seconds: 6,
  effects: { fills: true, still: true },
  async inject(world, random) {
    const ms = random.pick([random.int(100, 1_000), random.int(1_000, 12_000)]);
    let pressing;
    await world.server.disk.whileStill(async () => {
      pressing = press(world, ms, random);
      await isServing(world);
      await sleep(ms);
    });
    await pressing;
    await isWriting(world);
    return `${ms} ms`;
  },
};
