// The operator's server doesn't say of some users, or of all, whether they may connect: it hangs,
// or answers with an error.

import { sleep } from '../../lib/wait.mjs';

export default {
  name: 'door-silent', lane: 'door', weight: 3, needs: 'door',
  async inject({ users, server: { door } }, random) {
    const some = random.sample(users, random.pick([1, 5, users.length]));
    const how = random.pick(['hangs', 'fails']);
    door.say(some, how);
    await sleep(random.int(500, 4_000));
    door.say(some, 'yes');
    return `${how}: ${some}`;
  },
};
