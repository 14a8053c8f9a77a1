// A client reads nothing while more is published for it than its socket and outbox take: the policy
// for slow consumers decides (http.md 12).

const EVENTS = 150;
const LETTERS = 40_000;

export default {
  name: 'stall-and-flood', lane: 'flood', weight: 1,
  async inject({ clients, publisher }, random) {
    const connected = clients.filter((client) => client.isConnected && !client.stalled
      && client.transport !== 'poll');
    if (connected.length === 0) return;
    const client = random.pick(connected);
    const stalled = client.stall(random.int(1_000, 3_500));
    for (let n = 0; n < EVENTS && client.stalled; n += 1) {
      await publisher.one(client.user, random, LETTERS);
    }
    await stalled;
  },
};
