// The brain dies by SIGKILL and is started again. No connection may drop.

import { sleep } from '../../lib/wait.mjs';

export default {
  name: 'kill-brain', lane: 'server', weight: 8, effects: { kills: true },
  async inject({ server }, random) {
    await server.killBrain();
    await sleep(random.pick([0, 0, 100, 600]));
    await server.startBrain();
  },
};
