// What the parts of a round share: the server, the users and their clients, the history, and what
// went wrong that no history shows.

import { Client } from './client.mjs';
import { Follows } from './follows.mjs';
import { History } from './history.mjs';
import { Publisher } from './publisher.mjs';

const USERS = 48;
const SUBJECTS = 20;
const CROWD_SUBJECTS = 4;
const FOLLOWS_PER_USER = 4;
const PUBLISH_REST_MS = 150;
const WRONGS_MAX = 20;
const BEAT_MS = 50;
/** Half of what the server of a round leaves a client for the answer to a ping. */
const LATE_MS = 300;

const names = (prefix, count) => Array.from({ length: count }, (_, n) => `${prefix}${n}`);

export class World {
  users = names('u', USERS);
  subjects = names('s', SUBJECTS);
  crowd = names('c', CROWD_SUBJECTS);
  wrongs = [];
  refusals = {};
  isOver = false;
  #beatAt = performance.now();
  #heart;

  constructor(profile, server, random, mark) {
    this.profile = profile;
    this.server = server;
    this.random = random;
    this.history = new History(profile.promise);
    this.publisher = new Publisher(this, random.fork('publisher'), mark);
    this.follows = new Follows(this);
    this.clients = this.users.map((user) => new Client(this, user, random.fork(user)));
  }

  get publicPort() {
    return this.server.halley.publicPort;
  }

  get apiUrl() {
    return this.server.halley.apiUrl;
  }

  /** Everyone follows something, every client runs, the publishers begin. */
  async begin() {
    this.#beatAt = performance.now();
    this.#heart = setInterval(() => this.beat(), BEAT_MS);
    const pairs = this.users.flatMap((user) =>
      this.random.sample([...this.subjects, ...this.crowd], FOLLOWS_PER_USER)
        .map((subject) => [user, subject]));
    await this.follows.change('follow', pairs);
    this.running = this.clients.map((client) => client.run());
    // Some publish about users, which nobody has to follow.
    const own = this.random.sample(this.users, 8);
    this.publishing = this.publisher.run([...this.subjects, ...own], this.crowd, PUBLISH_REST_MS);
  }

  /** Notes if the checker itself had no time: a busy machine may hold it up as well. */
  beat() {
    const now = performance.now();
    const lateMs = Math.round(now - this.#beatAt - BEAT_MS);
    this.#beatAt = now;
    if (lateMs >= LATE_MS) for (const client of this.clients) client.wasLate(lateMs);
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
    for (const client of this.clients) client.stop();
    await Promise.all([...this.running ?? [], this.publishing]);
    this.publisher.close();
    this.follows.close();
  }
}
