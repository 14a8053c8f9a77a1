// The thread that has the edge's link stands still: all workers wait for what it has read, and the
// brain for it.

export default {
  name: 'hold-trunk', lane: 'thread', weight: 2, needs: 'threads', effects: { links: true },
  async inject({ server }, random) {
    return await server.holdThread(/^trunk$/, random, random.int(50, 2_000));
  },
};
