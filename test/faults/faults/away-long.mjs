// A client is away for longer than a short retention: a gap covers the missed events.

export default {
  name: 'away-long', lane: 'client', weight: 0.5,
  async inject({ clients }, random) {
    random.pick(clients).drop({ awayMs: random.int(3_500, 6_000) });
  },
};
