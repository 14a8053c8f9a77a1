// The edge dies by SIGKILL with every connection; the brain starts another.

export default {
  name: 'kill-edge', lane: 'server', weight: 4, effects: { closes: true },
  async inject({ server }) {
    await server.edgeIsBack(server.killEdge());
  },
};
