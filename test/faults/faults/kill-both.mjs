// Brain and edge die at the same moment, as in a power cut that spares the disk.

export default {
  name: 'kill-both', lane: 'server', weight: 2, effects: { kills: true, closes: true },
  async inject({ server }) {
    const edge = server.killEdge();
    await server.killBrain();
    await server.edgeIsGone(edge);
    await server.startBrain();
  },
};
