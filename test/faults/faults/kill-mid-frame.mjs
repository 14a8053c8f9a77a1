// A client dies in the middle of what it is reading, wherever that is, and comes back with the last
// cursor that it read whole.

export default {
  name: 'kill-mid-frame', lane: 'client', weight: 6,
  async inject({ clients }, random) {
    random.pick(clients).dieMidFrame(random.float(), { awayMs: random.pick([0, 200, 1_000]) });
  },
};
