// A bit of the log flips, under a running brain or between two. Some clients are away, so that they
// come back over it.

import { flipBit } from '../lib/damage.mjs';

export default {
  name: 'flip-bits', lane: 'server', weight: 2,
  effects: { kills: true, damages: true, anywhere: true },
  async inject({ server, history, clients }, random) {
    const running = random.chance(0.4);
    for (const client of random.sample(clients, 6)) client.drop({ awayMs: 2_500 });
    if (!running) await server.killBrain();
    // The newest part is the one that somebody still wants.
    const place = 1 - random.float() * random.float() * 0.2;
    const records = flipBit(history, server.segments().at(-1), place, random.int(0, 7));
    if (!running) await server.startBrain();
    return `${records} records`;
  },
};
