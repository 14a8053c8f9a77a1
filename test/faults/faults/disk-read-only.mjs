// The file system goes read-only under a running brain, as ext4 does when it finds an error. What
// was there is served. Later the disk is mounted anew.

import { mountAnew, press } from '../lib/disk.mjs';

export default {
  name: 'disk-read-only', lane: 'server', weight: 12, needs: 'ext4',
  effects: { fills: true, kills: true, closes: true },
  async inject(world, random) {
    world.server.disk.becomeReadOnly();
    await press(world, random.int(200, 3_000), random);
    await mountAnew(world);
  },
};
