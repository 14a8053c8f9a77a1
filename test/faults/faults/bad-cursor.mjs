// A client comes back with a cursor that is none: it gets a gap that says so, then live events.

export default {
  name: 'bad-cursor', lane: 'client', weight: 1,
  async inject({ clients }, random) {
    random.pick(clients).drop({ cursor: 'bad' });
  },
};
