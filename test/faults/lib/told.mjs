// Messages besides events while faults go on: presence for users who follow it (`Comings`), and
// hooks for an endpoint (`Hooked`), which has faults of its own. For rounds whose profile has
// `hooks`.

import { join } from 'node:path';
import { Certificates } from '../../lib/certificates.mjs';
import { Comings } from '../../lib/comings.mjs';
import { Endpoint, SECRET } from '../../lib/endpoint.mjs';
import { freePort, scratchFile } from '../../lib/halley.mjs';
import { User } from '../../lib/hooks-checker.mjs';
import { sleep, until, within } from '../../lib/wait.mjs';
import { Halls } from './halls.mjs';
import { Hooked } from './hooked.mjs';
import { Passers } from './passers.mjs';

const LEAVE_MS = 1_500;
/** The least that the configuration takes. */
const CLOSED_AFTER_MS = 5_000;
const USERS = 40;
const FOLLOWS = 8;
const ONLINE = 20;
const CHANGES_PER_S = 8;
const PUBLISHERS = 4;
const PUBLISH_REST_MS = 250;
const SETTLE_MS_MAX = 60_000;

/** An endpoint for this Halley, which is told of it; to be called before it starts. */
export async function hookedTo(halley, { tls }) {
  let certificate;
  if (tls) {
    const certificates = new Certificates(join(halley.folder, 'hooks-tls'));
    certificate = { key: certificates.file('server.key'), cert: certificates.file('server.pem') };
    halley.settings.HALLEY_HOOKS_TLS_CA = certificates.file('ca.pem');
  }
  const endpoint = new Endpoint(await freePort(), certificate);
  await endpoint.start();
  Object.assign(halley.settings, {
    HALLEY_HOOKS_URL: endpoint.url,
    HALLEY_HOOKS_EVENTS: 'opened,closed,published,undelivered,occupied,vacated',
    HALLEY_HOOKS_USERS: 'p*,h*,o*,away-*', HALLEY_HOOKS_SUBJECTS: 't*,o*,room/*',
    HALLEY_HOOKS_SECRET_FILE: scratchFile(halley, 'hooks-secret', `${SECRET}\n`),
    HALLEY_HOOKS_CLOSED_AFTER: `${CLOSED_AFTER_MS}ms`,
    // What is less patient than the faults are long, and a queue that they fill.
    HALLEY_LIMITS_HOOKS_REQUEST_MS_MAX: '1000',
    HALLEY_LIMITS_HOOKS_RETRY_MS_MAX: '500',
    HALLEY_LIMITS_HOOKS_QUEUE_BYTES_MAX: '16384',
    // As many users as one of those who come and go follows, and fewer than are in a full hall.
    HALLEY_LIMITS_PRESENCE_USERS_MAX: '8', HALLEY_LIMITS_PRESENCE_COUNTS_MS: '500',
    HALLEY_PRESENCE_SUBJECTS: 'p*,hall/*', HALLEY_PRESENCE_LEAVE_AFTER: `${LEAVE_MS}ms`,
  });
  return endpoint;
}

export class Told {
  #isOver = false;
  #hasEnded = false;
  #running = [];

  constructor(world, random) {
    this.world = world;
    this.endpoint = world.server.endpoint;
    // What a full disk has no room for is lost if nobody waits for it, and that is told.
    this.hooked = new Hooked(CLOSED_AFTER_MS,
      () => world.history.faults.some(({ fills }) => fills));
    this.passers = new Passers(world, random.fork('passers'));
    this.endpoint.take = (hook) => this.passers.take(hook) || this.hooked.take(hook);
    this.comings = new Comings(world.server.halley, { users: USERS, follows: FOLLOWS,
      seed: random.int(1, 1_000_000), leaveMs: LEAVE_MS });
    // Faults make all late: what is checked is that nothing is false, and what is so in the end.
    this.comings.storm();
    const { sessions } = this.hooked;
    this.comings.onHere = (user) => sessions.here(`p${user}`, Date.now());
    this.comings.onAway = (user) => sessions.away(`p${user}`, Date.now());
    this.publishers = Array.from({ length: PUBLISHERS },
      (_, n) => new User(`h${n}`, this.hooked.numbers));
    this.halls = new Halls(world, LEAVE_MS, random.fork('halls'));
    const subscribed = [...world.history.subscribed.values()].flatMap((all) => [...all]);
    this.occupied = world.topics.filter((topic) => subscribed.includes(topic));
  }

  async begin() {
    await this.comings.follow();
    await within('who comes first is there', this.comings.gather(ONLINE, ONLINE), SETTLE_MS_MAX);
    this.halls.begin();
    await this.passers.begin();
    this.#running.push(this.#comeAndGo(), ...this.publishers.map((user) => this.#publish(user)));
  }

  async #comeAndGo() {
    while (!this.#isOver) await this.comings.comeAndGo(CHANGES_PER_S, 1);
  }

  async #publish(user) {
    for (let turn = 0; !this.#isOver; turn += 1) {
      await user.publish(this.world.server.halley, turn % 2 === 0 ? 'about' : 'to',
        () => this.#hasEnded);
      await sleep(PUBLISH_REST_MS);
    }
  }

  /** The checker itself was held up. */
  wasLate(ms) {
    this.hooked.sessions.late(ms);
    this.halls.wasLate(ms);
    this.passers.owed.late(ms);
    this.comings.lateMs = Math.max(this.comings.lateMs, ms);
  }

  #owed() {
    const users = Array.from({ length: USERS }, (_, n) => `p${n}`);
    const owed = this.hooked.owed(this.publishers, users,
      (user) => this.comings.isHere(Number(user.slice(1))), this.occupied);
    return [...owed, ...this.passers.missing()];
  }

  /** No more faults and changes: all must be told in the end. */
  async settle() {
    const { world, comings, hooked } = this;
    this.#isOver = true;
    this.endpoint.mend();
    await within('every numbered event is acknowledged', Promise.all(this.#running),
      SETTLE_MS_MAX);
    await within('who passes by has gone', this.passers.stop(), SETTLE_MS_MAX);
    const mistaken = await comings.settle(SETTLE_MS_MAX);
    if (mistaken > 0) world.wrong(`presence: ${mistaken} don't know who is there in the end; ${
      comings.unsettled()}`);
    for (const [what, count] of Object.entries(comings.wrong)) {
      if (count > 0) world.wrong(`presence: ${count} ${what}: ${comings.first.join('; ')}`);
    }
    await this.halls.settle();
    await until('every hook is told', () => this.#owed().length === 0, SETTLE_MS_MAX)
      .catch(() => world.wrong(`hooks: never told: ${this.#owed().join('; ')}`));
    for (const problem of [...hooked.wrong(), ...this.passers.owed.wrong()]) {
      world.wrong(`hooks: ${problem}`);
    }
    if (this.endpoint.forged > 0) world.wrong('hooks: a signature is wrong');
    const presence = Object.entries(comings.seen).map(([what, n]) => [`presence: ${what}`, n]);
    world.history.told = { ...hooked.counts, ...Object.fromEntries(presence),
      ...this.passers.owed.counts, ...this.halls.counts };
  }

  end() {
    this.#isOver = true;
    this.#hasEnded = true;
    this.comings.leaveAll();
    this.halls.end();
    this.passers.end();
  }
}
