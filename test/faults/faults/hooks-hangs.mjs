// The endpoint of hooks takes requests and never answers.

import { sleep } from '../../lib/wait.mjs';

export default {
  name: 'hooks-hangs', lane: 'hooks', weight: 3, needs: 'hooks',
  async inject({ server: { endpoint } }, random) {
    endpoint.hangs = true;
    await sleep(random.int(500, 4_000));
    endpoint.hangs = false;
  },
};
