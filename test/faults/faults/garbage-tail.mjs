// The brain dies and after the log's end there is garbage, or zeros: a write that was torn. No
// record is hit, so nothing may be lost.

import { appendGarbage } from '../lib/damage.mjs';

export default {
  name: 'garbage-tail', lane: 'server', weight: 2, effects: { kills: true },
  async inject({ server }, random) {
    await server.killBrain();
    const zeros = random.chance(0.3);
    const garbage = Buffer.from(Array.from({ length: random.int(1, 5_000) },
      () => (zeros ? 0 : random.int(0, 255))));
    appendGarbage(server.segments().at(-1), garbage);
    await server.startBrain();
  },
};
