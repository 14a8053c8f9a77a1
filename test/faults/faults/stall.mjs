// A client reads nothing for a while, and goes on.

export default {
  name: 'stall', lane: 'client', weight: 2,
  async inject({ clients }, random) {
    await random.pick(clients).stall(random.int(200, 2_000));
  },
};
