// Nobody listens where the operator's server was, and what was open is cut.

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
