// The endpoint of hooks is closed, and open connections are cut.

import { sleep } from '../../lib/wait.mjs';

export default {
  name: 'hooks-down', lane: 'hooks', weight: 4, needs: 'hooks',
  async inject({ server: { endpoint } }, random) {
    await endpoint.stop();
    try {
      await sleep(random.int(200, 5_000));
    } finally {
      await endpoint.start();
    }
  },
};
