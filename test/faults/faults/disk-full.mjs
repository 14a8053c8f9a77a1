// The disk is full for a while: publishing is refused with 503 `disk_full`, connections stay, and
// when there is room again everything goes on by itself.

import { api } from '../../lib/client.mjs';
import { sleep, until } from '../../lib/wait.mjs';
import { whileFull } from '../lib/disk.mjs';

// It takes a second; the rest is for a busy machine.
const NOTICED_MS_MAX = 30_000;
const BEFORE_FULL = new Set(['history_failed', 'brain_away', 'overloaded']);

export default {
  name: 'disk-full', lane: 'server', weight: 12, effects: { fills: true },
  async inject(world, random) {
    await whileFull(world, 0, async () => {
      const refusal = await until('publishing is refused', async () => {
        const answer = await api(world.server.halley, 'POST', '/v1/events',
          { subject: 'nobody', data: 'x'.repeat(10_000) });
        // Who meets the end of the disk first gets `history_failed`: that event may be out. And
        // the link may be cut at the same moment, or much may wait to be written.
        return answer.status === 200 || BEFORE_FULL.has(answer.json?.error?.code) ? null : answer;
      }, NOTICED_MS_MAX);
      if (refusal.status !== 503 || refusal.json?.error?.code !== 'disk_full') {
        world.wrong(`on a full disk a publish got ${refusal.status} ${refusal.body}`);
      }
      await sleep(random.int(100, 1_500));
    });
    await until('publishing goes on when there is room', async () =>
      (await api(world.server.halley, 'POST', '/v1/events', { subject: 'nobody', data: 1 }))
        .status === 200, NOTICED_MS_MAX);
  },
};
