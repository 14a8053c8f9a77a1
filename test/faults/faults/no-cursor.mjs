// A client forgets its cursor: it gets live events only.

export default {
  name: 'no-cursor', lane: 'client', weight: 1,
  async inject({ clients }, random) {
    random.pick(clients).drop({ cursor: 'none' });
  },
};
