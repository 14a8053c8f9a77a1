// The power goes, at any moment, in the middle of imports, of an idle checkpoint and of a start. Of
// unsynced writes the disk keeps nothing, all, or some. Acknowledged changes are there then.

import { sleep } from '../../lib/wait.mjs';
import { idleCheckpoint } from '../lib/disk.mjs';

/** What goes on when the power goes; gives `{last}` if something is still in flight then. */
const MOMENTS = {
  async now({ keys }, random) {
    await sleep(random.int(0, 1_000));
    if (random.chance(0.5)) await keys?.change(random);
  },
  async import({ graph }, random) {
    const importing = graph.import(random.pick([2_000, 45_000]));
    await sleep(random.int(0, 600));
    return { last: importing };
  },
  async idle(world, random) {
    await idleCheckpoint(world, random);
    await sleep(random.pick([0, 500, 2_000]));
  },
  async start({ server }, random) {
    await server.killBoth();
    server.halley.spawn();
    await sleep(random.int(0, 1_500));
  },
};

export default {
  name: 'power-cut', lane: 'server', weight: 60, needs: 'power', seconds: 4,
  effects: { kills: true, closes: true, links: true, power: true },
  async inject(world, random) {
    const moment = random.pick(Object.keys(MOMENTS));
    const under = await MOMENTS[moment](world, random);
    const note = await world.cutPower(random);
    await world.server.startBrain();
    world.follows.beLoud();
    await under?.last;
    return `${moment}, ${note}`;
  },
};
