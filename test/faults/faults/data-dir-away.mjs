// An operator moves data.dir away under a running brain, and puts it back. Writes that were
// acknowledged in between went where the files are, or there were none.

import { existsSync, renameSync } from 'node:fs';
import { press } from '../lib/disk.mjs';

export default {
  name: 'data-dir-away', lane: 'server', weight: 3, needs: 'folder',
  effects: { fills: true, kills: true, closes: true, links: true, away: true },
  async inject(world, random) {
    const { server } = world;
    const away = `${server.dataDir}.away`;
    renameSync(server.dataDir, away);
    await press(world, random.int(300, 6_000), random);
    // Whatever was made in its place is none of it.
    if (existsSync(server.dataDir)) renameSync(server.dataDir, `${server.dataDir}.${Date.now()}`);
    renameSync(away, server.dataDir);
    if (random.chance(0.5)) await press(world, 500, random);
    await server.killBoth();
    await server.startBrain();
  },
};
