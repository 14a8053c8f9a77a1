// SIGTERM in the middle of everything: connections are closed over `drain.time`, with a cursor, and
// it exits with 0. Then Halley is started again.

export default {
  name: 'drain', lane: 'server', weight: 3, effects: { closes: true },
  async inject(world) {
    const { code, signal } = await world.server.halley.terminate('SIGTERM');
    if (code !== 0) world.wrong(`after SIGTERM it exited with ${code} ${signal}`);
    await world.server.startBrain();
  },
};
