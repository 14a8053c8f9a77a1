// A worker of the edge stands still while the others go on, and sometimes more comes for it than
// may wait: it loses its place then, and the trunk stays for the others (link.md 13.7).

const EVENTS = 24;
const LETTERS = 40_000;

export default {
  name: 'hold-worker', lane: 'thread', weight: 6, needs: 'threads', effects: { links: true },
  async inject({ server, publisher, crowd }, random) {
    const events = random.chance(0.5) ? EVENTS : 0;
    const flood = async () => {
      for (let n = 0; n < events; n += 1) await publisher.one(random.pick(crowd), random, LETTERS);
    };
    const [note] = await Promise.all([
      server.holdThread(/^worker-\d+$/, random, random.int(100, 3_000)), flood()]);
    return `${note}, ${events} large events`;
  },
};
