// A worker stands still for longer than `silence_ms`: a link of its own ends, a place on a trunk as
// well (link.md 13.7). Rare, as it takes long.

export default {
  name: 'hold-worker-long', lane: 'thread', weight: 0.5, seconds: 15, needs: 'threads',
  effects: { links: true },
  async inject({ server }, random) {
    return await server.holdThread(/^worker-\d+$/, random, random.int(10_500, 14_000));
  },
};
