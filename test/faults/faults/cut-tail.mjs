// The brain dies and the end of the log is gone, as after a crash of a machine whose disk lied. The
// cut may go through the middle of a record: a torn tail.

import { cutTail } from '../lib/damage.mjs';

export default {
  name: 'cut-tail', lane: 'server', weight: 2, effects: { kills: true, damages: true },
  async inject({ server, history }, random) {
    await server.killBrain();
    const records = cutTail(history, server.segments().at(-1), random.int(1, 2_000));
    await server.startBrain();
    return `${records} records`;
  },
};
