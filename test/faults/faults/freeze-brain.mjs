// The brain hangs (SIGSTOP) for longer than a heartbeat, and goes on.

export default {
  name: 'freeze-brain', lane: 'server', weight: 3, effects: { links: true },
  async inject({ server }, random) {
    await server.freeze('brain', random.int(200, 2_500));
  },
};
