// The operator's server refuses some users for a while. Open sessions stay, until a brain starts.

import { sleep } from '../../lib/wait.mjs';

export default {
  name: 'door-refuses', lane: 'door', weight: 6, needs: 'door',
  async inject({ users, server: { door } }, random) {
    const refused = random.sample(users, random.int(1, users.length / 2));
    door.say(refused, 'no');
    await sleep(random.int(1_000, 8_000));
    door.say(refused, 'yes');
    return `${refused}`;
  },
};
