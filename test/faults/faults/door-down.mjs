// The port of the operator's server is closed, and open connections are cut.

import { sleep } from '../../lib/wait.mjs';

export default {
  name: 'door-down', lane: 'door', weight: 2, needs: 'door', effects: { silences: true },
  async inject({ server: { door } }, random) {
    await door.stop();
    try {
      await sleep(random.int(200, 3_000));
    } finally {
      await door.start();
    }
  },
};
