// The link is cut: an impostor dials the edge and goes away; the brain dials again.

export default {
  name: 'cut-link', lane: 'link', weight: 1, effects: { links: true },
  async inject({ server }) {
    await server.cutLink();
  },
};
