// The wall clock jumps, forward or back, by up to an hour.

import { sleep } from '../../lib/wait.mjs';

export default {
  name: 'clock-step', lane: 'server', weight: 12,
  async inject({ server }, random) {
    const seconds = random.int(-3_600, 3_600);
    server.setClock(seconds);
    await sleep(random.int(200, 1_500));
    return `to ${seconds} s off`;
  },
};
