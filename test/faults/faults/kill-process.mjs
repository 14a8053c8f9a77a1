// One process of the brain's dies, any of those under its supervisors, as by a bug in it. Its
// supervisor starts it again, or the brain ends: without the store or the log there is none.

import { sleep } from '../../lib/wait.mjs';
import { isWriting } from '../lib/disk.mjs';
import { killProcess } from '../lib/processes.mjs';

export default {
  name: 'kill-process', lane: 'server', weight: 5,
  effects: { kills: true, spares: true, links: true },
  async inject(world, random) {
    const { server } = world;
    const name = await killProcess(server.killer);
    await sleep(random.int(0, 1_500));
    try {
      await isWriting(world);
    } catch (error) {
      if (!server.halley.hasExited) throw error;
      await server.startBrain();
      return `${name}, and with it the brain`;
    }
    return name;
  },
};
