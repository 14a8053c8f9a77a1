// The brain dies while it starts, recovers and adopts its edge, several times in a row.

import { sleep } from '../../lib/wait.mjs';

export default {
  name: 'kill-start', lane: 'server', weight: 6, needs: 'graph', effects: { kills: true },
  async inject({ server }, random) {
    await server.killBrain();
    const times = [];
    for (let left = random.int(1, 4); left > 0; left -= 1) {
      const ms = random.int(0, 1_200);
      server.halley.spawn();
      await sleep(ms);
      await server.halley.killStarting();
      times.push(ms);
    }
    await server.startBrain();
    return `${times.join(', ')} ms after its start`;
  },
};
