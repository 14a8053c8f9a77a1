// A client comes back with an invalid cursor: it gets a gap with that reason, then live events.

export default {
  name: 'bad-cursor', lane: 'client', weight: 1,
  async inject({ clients }, random) {
    random.pick(clients).drop({ cursor: 'bad' });
  },
};
