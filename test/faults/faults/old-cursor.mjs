// A client that lost its latest state comes back with an older cursor: all since then comes again.

export default {
  name: 'old-cursor', lane: 'client', weight: 3,
  async inject({ clients }, random) {
    random.pick(clients).drop({ cursor: 'old', awayMs: random.pick([0, 500]) });
  },
};
