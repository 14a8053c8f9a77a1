// A client goes away and comes back with its cursor.

export default {
  name: 'drop-client', lane: 'client', weight: 6,
  async inject({ clients }, random) {
    random.pick(clients).drop({ awayMs: random.pick([0, 50, 300, 1_500, 3_000]) });
  },
};
