// A server key is made, or one is revoked, and the brain may die right after.

export default {
  name: 'key-change', lane: 'server', weight: 2, needs: 'graph', effects: { kills: true },
  async inject({ keys, server }, random) {
    await keys.change(random);
    if (random.chance(0.5)) return;
    await server.killBrain();
    await server.startBrain();
  },
};
