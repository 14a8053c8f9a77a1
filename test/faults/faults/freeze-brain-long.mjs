// The brain hangs for longer than `silence_ms` (10 s, link.md 4.5): the edge ends the link, the
// brain wakes up, finds it so and dials again. No connection may drop. Rare, as it takes long.

export default {
  name: 'freeze-brain-long', lane: 'server', weight: 0.4, seconds: 13, effects: { links: true },
  async inject({ server }) {
    await server.freeze('brain', 11_500);
    await server.isReady();
  },
};
