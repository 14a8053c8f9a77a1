// The disk fails: what is written to it and flushed is an error, and the kernel tries none of it
// again. Then it is well. The file system may have given up meanwhile; it is mounted anew then.

import { isWriting, mountAnew, press } from '../lib/disk.mjs';

export default {
  name: 'disk-error', lane: 'server', weight: 12, needs: 'power', seconds: 4,
  effects: { fills: true, kills: true, closes: true },
  async inject(world, random) {
    const { disk } = world.server;
    await disk.whileFailing(() => press(world, random.int(50, 3_000), random));
    if (disk.isWritable()) {
      await isWriting(world);
      return 'by itself';
    }
    await mountAnew(world);
    return 'mounted anew';
  },
};
