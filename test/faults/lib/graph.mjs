// A graph that grows and changes besides the crowd of a round, in imports as well as one by one,
// and is read again after each fault, list by list. Most of its users never connect. Strangers do:
// users who come after a fault, and must not get what others follow.

import { Agent } from 'node:http';
import { http } from '../../lib/client.mjs';
import { sleep, within } from '../../lib/wait.mjs';
import { judgeList } from './answers.mjs';
import { Client } from './client.mjs';

const BASE_USERS = 450;
const BASE_SUBJECTS = 100;
const LISTENERS = 6;
const STRANGERS_LISTENING = 8;
const STRANGERS_LISTENING_MAX = 48;
const READERS = 16;
const READ_MS_MAX = 30_000;
const PAGE = [100, 1_000];
/** Names are ids that need care in a path, in JSON or in a line, too. */
const SPICES = ['', '', '', '/', ' ', '"', '%', 'ž', '日', '?x=', '#'];

export class Graph {
  users = [];
  subjects = [];
  #count = 0;
  #listening = 0;
  #stopped = false;
  #agent = new Agent({ keepAlive: true, maxSockets: READERS });

  constructor(world, random, mark) {
    this.world = world;
    this.random = random;
    this.mark = mark;
  }

  #names(prefix, count) {
    return Array.from({ length: count }, () => {
      this.#count += 1;
      const letters = this.random.int(0, 0xffffff).toString(36);
      return `${prefix}${this.random.pick(SPICES)}${letters}-${this.mark}-${this.#count}`;
    });
  }

  /** The first import, and clients of some of its users. */
  async begin() {
    await this.import(BASE_USERS * BASE_SUBJECTS);
    for (const user of this.random.sample(this.users, LISTENERS)) this.#listen(user);
  }

  #listen(user) {
    const client = new Client(this.world, user, this.random.fork(user));
    this.world.clients.push(client);
    this.world.running.push(client.run());
    return client;
  }

  /** New users and subjects, and follows of theirs: `rows` pairs in one request. */
  async import(rows, how) {
    const count = Math.max(1, Math.min(BASE_SUBJECTS, Math.round(rows / BASE_USERS)));
    const subjects = this.random.chance(0.5) || this.subjects.length < count
      ? this.#names('g', count) : this.random.sample(this.subjects, count);
    const users = this.#names('m', Math.ceil(rows / count));
    this.subjects.push(...subjects.filter((name) => !this.subjects.includes(name)));
    this.users.push(...users);
    const pairs = users.flatMap((user) => subjects.map((subject) => [user, subject]));
    return this.world.follows.change('follow', pairs, how);
  }

  /** Some of the pairs there are, taken away or put back, and some that are new. */
  async stir(how) {
    const [users, subjects] = [this.random.sample(this.users, this.random.int(1, 12)),
      this.random.sample(this.subjects, this.random.int(1, 12))];
    const pairs = users.flatMap((user) => subjects.map((subject) => [user, subject]));
    const op = this.random.pick(['follow', 'unfollow']);
    return this.world.follows.change(op, pairs, how);
  }

  /** Changes until `stop`, with rests in between. */
  async run() {
    while (!this.#stopped) {
      await sleep(this.random.int(10, 400));
      if (this.#stopped) return;
      if (this.random.chance(0.1)) await this.import(this.random.pick([1, 40, 2_000, 10_000]));
      else await this.stir();
    }
  }

  /** New users with follows of subjects of their own; the last ones follow nothing at all. */
  async addStrangers(count) {
    const strangers = this.#names('n', count);
    const own = this.#names('o', 20);
    await this.world.follows.change('follow', strangers.slice(0, -20).map((user) =>
      [user, this.random.pick(own)]));
    this.users.push(...strangers);
    this.subjects.push(...own);
    return strangers;
  }

  /** After a fault: new users come, everything is read, and some subjects are published about. */
  async check() {
    const strangers = await this.addStrangers(this.random.int(200, 1_500));
    for (const user of strangers.slice(0, STRANGERS_LISTENING)) {
      if (this.#listening >= STRANGERS_LISTENING_MAX) break;
      this.#listening += 1;
      this.#listen(user);
    }
    await this.compare([...this.random.sample(this.users, 200), ...strangers]);
    await Promise.all(this.random.sample(this.subjects, 12).map((subject) =>
      this.world.publisher.one(subject, this.random)));
  }

  /** Holds the lists of all subjects, and of these users, against the model. */
  async compare(users = this.users) {
    const left = [...this.subjects.map((name) => ['followers', name]),
      ...users.map((name) => ['following', name])];
    const before = this.world.wrongs.length;
    const readers = Array.from({ length: READERS }, async () => {
      for (let next = left.pop(); next; next = left.pop()) {
        if (this.world.wrongs.length > before) return;
        await this.#judge(...next);
      }
    });
    await Promise.all(readers);
  }

  async #judge(list, name) {
    const { history } = this.world;
    const begun = history.tick();
    const names = await this.#read(list, name);
    const ended = history.tick();
    if (names === null) return;
    history.listRead(names.length, judgeList(history, { list, name, names, begun, ended }));
  }

  /** All pages; null if it could not be read, which is told. */
  async #read(list, name) {
    const kind = list === 'followers' ? 'subjects' : 'users';
    const limit = this.random.int(...PAGE);
    const path = `/v1/${kind}/${encodeURIComponent(name)}/${list}?limit=${limit}`;
    const names = [];
    for (let after = ''; ;) {
      const { status, body, json } = await this.#get(path + after);
      if (status !== 200 || !Array.isArray(json?.[list])) {
        this.world.wrong(`GET ${path + after} answered ${status} ${body.slice(0, 200)}`);
        return null;
      }
      names.push(...json[list]);
      if (json.next === null) return names;
      after = `&after=${encodeURIComponent(json.next)}`;
    }
  }

  /** Asked again while the brain is away. */
  async #get(path) {
    const end = Date.now() + READ_MS_MAX;
    for (;;) {
      let answer;
      try {
        answer = await within(`GET ${path}`, http('GET', this.world.apiUrl + path,
          { agent: this.#agent, headers: this.world.headers }), READ_MS_MAX);
      } catch (error) {
        answer = { status: error.code ?? 'nothing', body: error.message };
      }
      const isAway = !Number.isInteger(answer.status) || answer.status > 500;
      if (!isAway || Date.now() >= end || this.world.isOver) return answer;
      await sleep(50);
    }
  }

  stop() {
    this.#stopped = true;
  }

  close() {
    this.#agent.destroy();
  }
}
