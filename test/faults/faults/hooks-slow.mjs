// The endpoint of hooks takes them and answers late, often too late for the request.

import { sleep } from '../../lib/wait.mjs';

export default {
  name: 'hooks-slow', lane: 'hooks', weight: 3, needs: 'hooks',
  async inject({ server: { endpoint } }, random) {
    endpoint.pauseMs = random.int(100, 1_500);
    await sleep(random.int(500, 4_000));
    endpoint.pauseMs = 0;
  },
};
