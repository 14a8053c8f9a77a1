// A worker's link is cut: an impostor dials the worker and goes away; the brain dials again.

export default {
  name: 'cut-link', lane: 'link', weight: 1, effects: { links: true },
  async inject({ server }, random) {
    await server.cutLink(random.int(0, server.workers - 1));
  },
};
