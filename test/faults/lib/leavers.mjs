// Users that are deleted while the faults go on (DELETE /v1/users/U), and come back as new users:
// they follow and are followed, there are events about them and to them alone, and their clients
// bring the cursors from before. forgotten.mjs and answers.mjs judge their traces.

import { Agent } from 'node:http';
import { sleep } from '../../lib/wait.mjs';
import { judgeList } from './answers.mjs';
import { asked } from './asked.mjs';

const LIFE_MS = [400, 5_000];
const AFTER_MS = [20, 800];
const ATTEMPT_MS_MAX = 20_000;
const FOLLOWS = 2;
const FOLLOWERS = 3;

export class Leavers {
  #stopped = false;
  #agent = new Agent({ keepAlive: true });

  constructor(world, users, random) {
    this.world = world;
    this.users = users;
    this.random = random;
  }

  /** Each lives and is deleted, until `stop`. */
  async run() {
    await Promise.all(this.users.map((user) => this.#lives(user, this.random.fork(user))));
  }

  async #lives(user, random) {
    const { follows, subjects, users } = this.world;
    while (!this.#stopped) {
      await follows.change('follow', [
        ...random.sample(subjects, FOLLOWS).map((subject) => [user, subject]),
        ...random.sample(users, FOLLOWERS).map((other) => [other, user])]);
      await sleep(random.int(...LIFE_MS));
      // Follows that have their rest must not be told of the end of some.
      if (this.#stopped || follows.isQuiet) continue;
      await this.#delete(user, random);
      await sleep(random.int(...AFTER_MS));
      await this.#look(user, random);
    }
  }

  /** It is done again until it is answered: a part may be done before. */
  async #delete(user, random) {
    const { history } = this.world;
    const death = history.deathBegun(user);
    const answer = await this.#ask('DELETE', `/v1/users/${user}`, random);
    if (answer) history.deathAcked(death);
  }

  /** The lists of all of them, when nothing fails any longer. */
  async last() {
    for (const user of this.users) await this.#look(user, this.random);
  }

  async #look(user, random) {
    const { history } = this.world;
    for (const [list, kind] of [['followers', 'subjects'], ['following', 'users']]) {
      const begun = history.tick();
      const answer = await this.#ask('GET', `/v1/${kind}/${user}/${list}?limit=1000`, random);
      if (!answer) return;
      const names = answer[list];
      history.listRead(names.length,
        judgeList(history, { list, name: user, names, begun, ended: history.tick() }));
    }
  }

  #ask(method, path, random) {
    return asked(this.world, { method, url: this.world.apiUrl + path, random,
      request: { agent: this.#agent, headers: this.world.headers }, msMax: ATTEMPT_MS_MAX,
      mayPass: (status) => status >= 500 });
  }

  stop() {
    this.#stopped = true;
  }

  close() {
    this.#agent.destroy();
  }
}
