// Users who come and go, some with the cursor that they have and some without, while events are
// published to them alone, to some of them, about themselves, and about a room that some follow.
// owed.mjs is the verdict on the hooks about that.

import { connect } from 'node:net';
import { api } from '../../lib/client.mjs';
import { sleep, within } from '../../lib/wait.mjs';
import { Owed } from './owed.mjs';

const USERS = 16;
const FOLLOWERS = 5;
const ROOM = 'room/passers';
const RETRY_MS = 300;
const OPEN_MS_MAX = 15_000;
const STAY_MS = { short: [20, 800], long: [1_000, 6_000] };
const AWAY_MS = { short: [20, 1_500], long: [3_000, 14_000] };
const LONG_SHARE = 0.5;
const PUBLISH_REST_MS = [100, 500];
const PUBLISHERS = 3;
const PUBLISH_MS_MAX = 10_000;
const TICK_MS = 50;

/** A connection of one user, until it ends or is left. */
class Visit {
  #socket;
  #rest = '';
  #timer;

  constructor(port, user, cursor, attempt, onCursor) {
    this.attempt = attempt;
    const query = new URLSearchParams({ user, ...cursor && { cursor } });
    this.#socket = connect({ port, host: '127.0.0.1', noDelay: true });
    this.#socket.setEncoding('latin1');
    this.#socket.write(`GET /v1/stream?${query} HTTP/1.1\r\nHost: h\r\n`
      + 'Accept: text/event-stream\r\n\r\n');
    this.#socket.on('data', (text) => this.#read(text, onCursor));
    this.ended = new Promise((resolve) => {
      for (const end of ['error', 'end', 'close']) {
        this.#socket.on(end, () => { this.#over(false); resolve(); });
      }
    });
    this.#timer = setTimeout(() => this.leave(), OPEN_MS_MAX);
  }

  #read(text, onCursor) {
    const lines = (this.#rest + text).split('\n');
    this.#rest = lines.pop();
    for (const line of lines) {
      if (line.startsWith('HTTP/1.1 ') && !line.startsWith('HTTP/1.1 200')) {
        this.#socket.destroy();
        return;
      }
      if (!line.startsWith('id:')) continue;
      clearTimeout(this.#timer);
      this.attempt.welcome ??= Date.now();
      onCursor(line.slice(3).trim());
    }
  }

  get isOver() { return this.attempt.end !== null; }

  #over(isClosed) {
    clearTimeout(this.#timer);
    if (this.isOver) return;
    Object.assign(this.attempt, { end: Date.now(), isClosed });
  }

  leave() {
    this.#over(true);
    this.#socket.destroy();
  }
}

export class Passers {
  #isOver = false;
  #hasEnded = false;
  #running = [];
  #count = 0;
  #visits = new Map();
  #users = Array.from({ length: USERS }, (_, n) => `o${n}`);

  constructor(world, random) {
    this.world = world;
    this.random = random;
    const faults = world.profile.disk?.kind === 'power';
    this.owed = new Owed({ mayRepeat: faults });
  }

  async begin() {
    const lines = this.#users.slice(0, FOLLOWERS)
      .map((user) => `${JSON.stringify({ user, subject: ROOM })}\n`).join('');
    const { status, body } = await api(this.world.server.halley, 'POST', '/v1/follows', lines,
      { 'content-type': 'application/x-ndjson' });
    if (status !== 200) throw new Error(`follows: ${status} ${body}`);
    this.#running.push(...this.#users.map((user, n) => this.#passes(user, n)),
      ...Array.from({ length: PUBLISHERS }, (_, n) =>
        this.#publishes(this.random.fork(`publisher ${n}`))));
  }

  // ---- who comes and goes ----

  /** One user of three never brings a cursor, one always does, one does at times. */
  async #passes(user, n) {
    const random = this.random.fork(user);
    let cursor = null;
    while (!this.#isOver) {
      const brings = [false, true, random.chance(0.5)][n % 3] ? cursor : null;
      const attempt = this.owed.attempt(user, Date.now(), brings?.at);
      const visit = new Visit(this.world.publicPort, user, brings?.text, attempt,
        (text) => { cursor = { text, at: Date.now() }; });
      this.#visits.set(user, visit);
      await this.#rest(random, STAY_MS, visit);
      if (visit.isOver) {
        await sleep(RETRY_MS);
      } else {
        visit.leave();
        await this.#rest(random, AWAY_MS);
      }
    }
  }

  async #rest(random, times, visit) {
    const end = Date.now() + random.int(...times[random.chance(LONG_SHARE) ? 'long' : 'short']);
    // A wish to stay counts from the welcome on.
    while (!this.#isOver && !visit?.isOver
      && (Date.now() < end || visit?.attempt.welcome === null)) await sleep(TICK_MS);
  }

  // ---- what is published ----

  async #publishes(random) {
    while (!this.#isOver) {
      await sleep(random.int(...PUBLISH_REST_MS));
      if (this.#isOver) return;
      await this.#publish(...this.#draw(random), random);
    }
  }

  #draw(random) {
    const choice = random.float();
    if (choice < 0.15) return [this.#users.slice(0, FOLLOWERS), { subject: ROOM }];
    if (choice < 0.3) {
      const user = random.pick(this.#users);
      return [[user], { subject: user }];
    }
    const users = random.sample(this.#users, choice < 0.75 ? 1 : random.int(2, 4));
    return [users, { to: users }];
  }

  /** Until it is acknowledged. What another attempt than the first answers says nothing of when. */
  async #publish(users, whom, random) {
    this.#count += 1;
    const id = `owed-${this.#count}`;
    const isAlone = whom.to?.length === 1;
    const event = this.owed.event(id, users, Date.now(), isAlone);
    const body = JSON.stringify({ id, ...whom, data: { passers: true } });
    for (let tries = 1; !this.#hasEnded; tries += 1) {
      try {
        const { status, json } = await within('a publish', api(this.world.server.halley, 'POST',
          '/v1/events', body, { 'content-type': 'application/json' }), PUBLISH_MS_MAX);
        if (status === 200) {
          Object.assign(event, { acked: Date.now(), sessions: tries === 1 ? json.sessions : null });
          return;
        }
      } catch {
        // No brain just now, or no answer: again, under the same id.
      }
      await sleep(random.int(20, 150));
    }
  }

  // ---- what hooks say ----

  /** Whether a hook is about these users; then it is taken. */
  take(hook) {
    if (hook.type === 'gap') this.owed.hook(hook);
    const isOurs = hook.event ? hook.event.data?.passers === true : /^o\d+$/.test(hook.user ?? '');
    if (isOurs) this.owed.hook(hook);
    return isOurs;
  }

  /** Nobody comes and goes any more, and all is acknowledged. */
  async stop() {
    this.#isOver = true;
    await Promise.all(this.#running);
    for (const visit of this.#visits.values()) visit.leave();
    this.#disturbances();
  }

  /** All that could hold up the server or what it has written. */
  #disturbances() {
    for (const { name, begunMs, endedMs, kills, fills, closes, links, damages } of
      this.world.history.faults) {
      if (!(kills || fills || closes || links || damages)) continue;
      const isWritten = !(kills || fills || damages || name === 'drain');
      Object.assign(this.owed.disturb(begunMs, !isWritten), { end: endedMs });
    }
  }

  /** What isn't told yet; behind `stop`. */
  missing() {
    const mistaken = this.owed.mistaken();
    return [...this.owed.owed(),
      ...mistaken.length > 0 ? [`opened or closed of ${mistaken.join(', ')}`] : []];
  }

  end() {
    this.#isOver = true;
    this.#hasEnded = true;
    for (const visit of this.#visits.values()) visit.leave();
  }
}
