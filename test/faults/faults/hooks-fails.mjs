// The endpoint of hooks answers with an error.

import { sleep } from '../../lib/wait.mjs';

export default {
  name: 'hooks-fails', lane: 'hooks', weight: 3, needs: 'hooks',
  async inject({ server: { endpoint } }, random) {
    const status = random.pick([301, 404, 413, 500, 503]);
    endpoint.answer = () => status;
    await sleep(random.int(200, 2_000));
    endpoint.answer = () => 204;
  },
};
