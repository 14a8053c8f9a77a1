// The edge hangs (SIGSTOP) and goes on: its clients and its links wait for it.

export default {
  name: 'freeze-edge', lane: 'server', weight: 3, effects: { links: true },
  async inject({ server }, random) {
    await server.freeze('edge', random.int(200, 2_500));
  },
};
