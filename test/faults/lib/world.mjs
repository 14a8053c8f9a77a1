// Shared by the parts of a round: the server, the users and their clients, the history, and what
// went wrong that no history shows.

import { Client } from './client.mjs';
import { Follows } from './follows.mjs';
import { Graph } from './graph.mjs';
import { History } from './history.mjs';
import { Keys } from './keys.mjs';
import { Leavers } from './leavers.mjs';
import { Publisher } from './publisher.mjs';
import { Told } from './told.mjs';
import { Walkers } from './walkers.mjs';
import { sleep } from '../../lib/wait.mjs';

const USERS = 48;
const SUBJECTS = 20;
const CROWD_SUBJECTS = 4;
const FOLLOWS_PER_USER = 4;
/** Subjects that nobody follows, and clients without a user. */
const TOPICS = 6;
const VISITORS = 8;
const TOPICS_PER_CLIENT = 2;
/** For how many users alone there are events. */
const PRIVATES = [1, 1, 2, 3, 8, 24, Infinity];
/** Names for events about several subjects, and subjects with kept values. */
const JOINTS = 6;
const KEPT = 3;
/** Users that are deleted, each with events for it alone or for some others as well; about every
 *  second one all events are kept. */
const LEAVERS = 4;
const PUBLISH_REST_MS = 150;
const WRONGS_MAX = 20;
const BEAT_MS = 50;
/** Half of what the server of a round leaves a client for the answer to a ping. */
const LATE_MS = 300;

const CUT_STYLES = ['none', 'none', 'all', 'all', 'all', 'prefix', 'prefix', 'writes', 'writes',
  'sectors'];
/** By then what the dead server had written to its sockets has been read. */
const DARK_MS = 50;

const names = (prefix, count) => Array.from({ length: count }, (_, n) => `${prefix}${n}`);

export class World {
  users;
  subjects;
  crowd = names('c', CROWD_SUBJECTS);
  wrongs = [];
  refusals = {};
  isOver = false;
  /** The power is off: an answer that comes now was given by a server that is no more. */
  isDark = false;
  running = [];
  #beatAt = performance.now();
  #heart;

  constructor(profile, server, random, mark) {
    this.profile = profile;
    this.server = server;
    this.random = random;
    this.users = names('u', profile.users ?? USERS);
    this.subjects = names('s', profile.subjects ?? SUBJECTS);
    this.history = new History(profile.promise);
    this.privates = names('p', PRIVATES.length);
    for (const [n, size] of PRIVATES.entries()) {
      const users = random.fork(`p${n}`).sample(this.users, Math.min(size, this.users.length));
      this.history.privates.set(this.privates[n], new Set(users));
    }
    this.leavers = names('d', LEAVERS);
    for (const [n, user] of this.leavers.entries()) {
      const others = random.fork(user).sample(this.users, n);
      this.privates.push(`q${n}`);
      this.history.privates.set(`q${n}`, new Set([user, ...others]));
    }
    this.topics = names('t', TOPICS);
    this.kept = names('k', KEPT);
    this.history.kept = new Set([...this.kept, ...this.leavers.filter((_, n) => n % 2 === 0)]);
    this.joints = names('j', JOINTS);
    for (const name of this.joints) {
      const choice = random.fork(name);
      this.history.joints.set(name, choice.sample([...choice.sample(this.subjects, 3),
        ...choice.sample(this.topics, 2), ...choice.sample(this.users, 2)], choice.int(2, 7)));
    }
    const visitors = names('v', VISITORS);
    this.history.visitors = new Set(visitors);
    if (server.door) server.door.history = this.history;
    for (const name of [...this.users, ...visitors]) {
      const choice = random.fork(`subscriptions of ${name}`);
      // One of the second kind may be followed as well. A visitor has a subject of its name, too: a
      // user would have that as a user.
      this.history.subscribed.set(name, new Set([...choice.sample(this.topics, TOPICS_PER_CLIENT),
        ...choice.sample(this.subjects, 1), ...choice.sample(this.kept, 1),
        ...visitors.includes(name) ? [name] : []]));
    }
    this.publisher = new Publisher(this, random.fork('publisher'), mark);
    this.walkers = new Walkers(this, random.fork('walkers'));
    this.follows = new Follows(this);
    this.leaving = new Leavers(this, this.leavers, random.fork('leavers'));
    this.graph = profile.hasGraph ? new Graph(this, random.fork('graph'), mark) : null;
    this.keys = profile.hasKeys ? new Keys(this) : null;
    this.told = profile.hooks ? new Told(this, random.fork('told')) : null;
    this.clients = [...this.users, ...this.leavers]
      .map((user) => new Client(this, user, random.fork(user)));
    this.clients.push(...visitors.map((name) => new Client(this, name, random.fork(name), true)));
  }

  get publicPort() {
    return this.server.halley.publicPort;
  }

  get apiUrl() {
    return this.server.halley.apiUrl;
  }

  /** What every request of a server has besides. */
  get headers() {
    return this.keys?.headers ?? {};
  }

  /** Everyone follows something, every client runs, the publishers begin. */
  async begin() {
    this.#beatAt = performance.now();
    this.#heart = setInterval(() => this.beat(), BEAT_MS);
    const pairs = this.users.flatMap((user) =>
      this.random.sample([...this.subjects, ...this.crowd], FOLLOWS_PER_USER)
        .map((subject) => [user, subject]));
    await this.follows.change('follow', pairs);
    this.running.push(...this.clients.map((client) => client.run()));
    // Some publish about users, which nobody has to follow.
    const own = this.random.sample(this.users, this.users.length / 6);
    const subjects = [...this.subjects, ...own, ...this.leavers, ...this.privates, ...this.topics,
      ...this.joints, ...this.kept];
    this.publishing = this.publisher.run(subjects, this.crowd,
      this.profile.publishRestMs ?? PUBLISH_REST_MS);
    this.walked = [...this.subjects, ...this.crowd, ...own, ...this.leavers, ...this.topics,
      ...this.kept];
    this.running.push(this.walkers.run(this.walked));
    this.deleting = this.leaving.run();
    await this.graph?.begin();
    this.stirring = this.graph?.run();
    await this.told?.begin();
  }

  /** Notes if the checker itself had no time: a busy machine may hold it up as well. */
  beat() {
    const now = performance.now();
    const lateMs = Math.round(now - this.#beatAt - BEAT_MS);
    this.#beatAt = now;
    if (lateMs < LATE_MS) return;
    for (const client of this.clients) client.wasLate(lateMs);
    this.told?.wasLate(lateMs);
  }

  /** The power goes and comes back; gives a note of what was kept. Nothing runs afterwards. */
  async cutPower(random) {
    const percent = random.pick([5, 50, 95]);
    const style = random.pick(CUT_STYLES);
    let note;
    // Whoever was answered before this got it from before the cut.
    this.isDark = true;
    try {
      const { cached, kept } = await this.server.disk.cut({ style, percent,
        seed: random.int(1, 1_000_000) });
      await this.server.killBoth();
      await sleep(DARK_MS);
      await this.server.disk.restore();
      note = `${kept} of ${cached} writes kept`;
    } finally {
      this.isDark = false;
    }
    return `${style}: ${note}`;
  }

  /** Something that must not be, whatever the history says. */
  wrong(text) {
    if (this.wrongs.length < WRONGS_MAX) this.wrongs.push(text);
  }

  refused(status) {
    this.refusals[status] = (this.refusals[status] ?? 0) + 1;
  }

  async end() {
    this.isOver = true;
    clearInterval(this.#heart);
    this.publisher.stop();
    this.walkers.stop();
    this.leaving.stop();
    this.graph?.stop();
    this.told?.end();
    for (const client of this.clients) client.stop();
    await Promise.all([...this.running, this.publishing, this.deleting, this.stirring]);
    this.publisher.close();
    this.walkers.close();
    this.leaving.close();
    this.follows.close();
    this.graph?.close();
  }
}
