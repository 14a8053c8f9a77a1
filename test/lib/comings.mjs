// Users who come and go at a rate, each of whom follows the presence of its follows
// (protocol/http.md 22.6), and a model of it. Messages have to be true: no user is reported as gone
// who wasn't away for long enough, each change is sent in the end, and when all is quiet all know
// exactly who is there. By a seed; a test of seconds, bench/presence and the checker use it.
//
// A session is a socket that reads server-sent events, without anything else around it: one process
// has tens of thousands of them.

import { connect } from 'node:net';
import { Random } from '../faults/lib/random.mjs';
import { api } from './client.mjs';
import { sleep } from './wait.mjs';

const AWAY = 0;
const OPENING = 1;
const HERE = 2;
const TICK_MS = 10;
const RETRY_MS = 300;
const PAIRS_AT_ONCE = 20_000;
/** Of clients and server together, behind a change. */
const SLACK_MS = 5_000;
const LINE = 'data: {"presence":';
const CHANGE = /"user":"p(\d+)","state":"(join|leave)"/;

/** Ids of users, one of which can be drawn. */
class Drawn {
  #all = [];
  #places = new Map();

  add(user) {
    this.#places.set(user, this.#all.length);
    this.#all.push(user);
  }

  delete(user) {
    const place = this.#places.get(user);
    if (place === undefined) return;
    this.#places.delete(user);
    const last = this.#all.pop();
    if (last === user) return;
    this.#all[place] = last;
    this.#places.set(last, place);
  }

  get size() { return this.#all.length; }
  draw(chance) { return this.#all[Math.floor(chance * this.#all.length)]; }
  [Symbol.iterator]() { return this.#all.values(); }
}

export class Comings {
  here = new Drawn();
  away = new Drawn();
  seen = { comings: 0, goings: 0, returns: 0, joins: 0, leaves: 0, states: 0, broken: 0 };
  /** What was told and wasn't so, or was so and wasn't told. */
  wrong = { leaves: 0, joins: 0, missingLeaves: 0, missingJoins: 0, unknown: 0 };
  first = [];
  /** Called when a user's session is there, and when it is over. */
  onHere = () => {};
  onAway = () => {};

  /** `asks`: whether sessions ask for presence. */
  constructor(halley, { users, follows, seed, leaveMs, asks = true, addresses = 1 }) {
    Object.assign(this, { halley, users, perUser: follows, leaveMs, asks, addresses });
    const random = new Random(seed);
    this.chance = () => random.float();
    this.at = new Uint8Array(users);
    this.wentAt = new Float64Array(users).fill(-Infinity);
    this.cameAt = new Float64Array(users).fill(-Infinity);
    /** How long the last absence was. */
    this.absence = new Float64Array(users).fill(Infinity);
    this.told = new Uint32Array(users);
    this.sockets = new Map();
    this.timers = new Set();
    this.calmSince = 0;
    /** So late may a session's end have been noticed, where this process was held up. */
    this.lateMs = 0;
    for (let user = 0; user < users; user += 1) this.away.add(user);
    this.#drawFollows();
  }

  #drawFollows() {
    const { users, perUser } = this;
    this.following = new Uint32Array(users * perUser);
    this.followers = Array.from({ length: users }, () => []);
    for (let user = 0; user < users; user += 1) {
      const drawn = new Set();
      while (drawn.size < perUser) {
        const other = Math.floor(this.chance() * users);
        if (other !== user) drawn.add(other);
      }
      [...drawn].forEach((other, n) => {
        this.following[user * perUser + n] = other;
        this.followers[other].push(user);
      });
    }
  }

  async follow() {
    let lines = [];
    const send = async () => {
      const answer = await api(this.halley, 'POST', '/v1/follows', lines.join(''),
        { 'content-type': 'application/x-ndjson' });
      if (answer.status !== 200) throw new Error(`${answer.status} ${answer.body}`);
      lines = [];
    };
    for (let n = 0; n < this.following.length; n += 1) {
      const user = Math.floor(n / this.perUser);
      lines.push(`{"user":"p${user}","subject":"p${this.following[n]}"}\n`);
      if (lines.length === PAIRS_AT_ONCE) await send();
    }
    if (lines.length > 0) await send();
  }

  // ---- sessions ----

  come(user) {
    if (this.at[user] !== AWAY || this.over) return;
    this.at[user] = OPENING;
    this.away.delete(user);
    this.here.add(user);
    this.seen.comings += 1;
    this.#checkLeaves(user);
    this.#open(user);
  }

  #open(user) {
    const socket = connect({ port: this.halley.publicPort, host: '127.0.0.1',
      localAddress: `127.0.1.${1 + (user % this.addresses)}` });
    this.sockets.set(user, socket);
    let rest = '';
    socket.setNoDelay(true);
    socket.setEncoding('latin1');
    const asked = this.asks ? '&presence=*' : '';
    socket.on('connect', () => socket.write(`GET /v1/stream?user=p${user}${asked} HTTP/1.1\r\n`
      + 'Host: h\r\nAccept: text/event-stream\r\n\r\n'));
    socket.on('data', (text) => {
      if (this.sockets.get(user) !== socket) return;
      const lines = (rest + text).split('\n');
      rest = lines.pop();
      if (this.at[user] === OPENING) this.#opening(user, socket, lines);
      for (const line of lines) if (line.startsWith(LINE)) this.#heard(user, line);
    });
    const ended = () => {
      if (this.sockets.get(user) !== socket) return;
      if (this.at[user] === HERE) this.seen.broken += 1;
      this.#again(user);
    };
    socket.on('error', ended);
    socket.on('close', ended);
  }

  #opening(user, socket, lines) {
    for (const line of lines) {
      if (line.startsWith('HTTP/1.1 ') && !line.startsWith('HTTP/1.1 200')) {
        this.#again(user);
        return;
      }
      // The first heartbeat may come with the welcome.
      if (line.startsWith('id:') && this.at[user] === OPENING) {
        this.at[user] = HERE;
        this.cameAt[user] = performance.now();
        this.absence[user] = this.cameAt[user] - this.wentAt[user];
        this.onHere(user);
      }
    }
  }

  #again(user) {
    this.sockets.get(user)?.destroy();
    this.sockets.delete(user);
    if (this.at[user] === HERE) {
      this.wentAt[user] = performance.now();
      this.onAway(user);
    }
    this.at[user] = OPENING;
    this.told[user] = 0;
    this.#later(RETRY_MS, () => {
      if (this.at[user] === OPENING && !this.sockets.has(user)) this.#open(user);
    });
  }

  #later(ms, what) {
    const timer = setTimeout(() => {
      this.timers.delete(timer);
      if (!this.over) what();
    }, ms);
    this.timers.add(timer);
  }

  go(user) {
    if (this.at[user] !== HERE) return false;
    this.#checkJoins(user);
    this.#left(user);
    this.seen.goings += 1;
    return true;
  }

  #left(user) {
    const socket = this.sockets.get(user);
    this.sockets.delete(user);
    socket.destroy();
    this.at[user] = AWAY;
    this.wentAt[user] = performance.now();
    this.onAway(user);
    this.told[user] = 0;
    this.here.delete(user);
    this.away.add(user);
  }

  isHere(user) {
    return this.at[user] === HERE;
  }

  // ---- what is told ----

  #bit(watcher, user) {
    const from = watcher * this.perUser;
    for (let n = 0; n < this.perUser; n += 1) if (this.following[from + n] === user) return 1 << n;
    return 0;
  }

  #heard(watcher, line) {
    const change = CHANGE.exec(line);
    if (change === null) {
      this.#state(watcher, JSON.parse(line.slice(6)).presence);
      return;
    }
    const user = Number(change[1]);
    const bit = this.#bit(watcher, user);
    if (bit === 0) this.#fault('unknown', `p${watcher} is told of p${user}`);
    if (change[2] === 'join') {
      this.seen.joins += 1;
      this.#joined(watcher, user);
      this.told[watcher] |= bit;
    } else {
      this.seen.leaves += 1;
      if ((this.told[watcher] & bit) !== 0) this.#hasLeft(watcher, user);
      this.told[watcher] &= ~bit;
    }
  }

  /** It replaces all that was told: who is missing has left. */
  #state(watcher, { users }) {
    this.seen.states += 1;
    let told = 0;
    for (const name of users) {
      const user = Number(name.slice(1));
      this.#joined(watcher, user);
      told |= this.#bit(watcher, user);
    }
    const gone = this.told[watcher] & ~told;
    const from = watcher * this.perUser;
    for (let n = 0; n < this.perUser; n += 1) {
      if ((gone & (1 << n)) !== 0) this.#hasLeft(watcher, this.following[from + n]);
    }
    this.told[watcher] = told;
  }

  #joined(watcher, user) {
    const awayMs = performance.now() - this.wentAt[user];
    if (this.at[user] === AWAY && awayMs > this.#recentMs()) {
      this.#fault('joins', `p${watcher}: p${user} is said to be there, gone for ${awayMs} ms`);
    }
  }

  /** Who is told to be there may be on its way out, or the brain may have begun anew. */
  #recentMs() {
    const anew = performance.now() - this.calmSince;
    return this.leaveMs + SLACK_MS + (anew < 0 ? Infinity : 0);
  }

  #hasLeft(watcher, user) {
    const now = performance.now();
    const wasMs = this.at[user] === HERE ? this.absence[user] : now - this.wentAt[user];
    const lateMs = this.at[user] === HERE ? now - this.cameAt[user] : 0;
    if (wasMs < this.leaveMs - TICK_MS - this.lateMs || lateMs > SLACK_MS + this.lateMs) {
      this.#fault('leaves', `p${watcher}: p${user} is said to have left, `
        + `was away for ${wasMs} ms, is back for ${lateMs} ms`);
    }
  }

  /** Whoever has watched for as long has been told that this user left. */
  #checkLeaves(user) {
    const went = this.wentAt[user];
    if (!this.asks || went < this.calmSince
        || performance.now() - went < this.leaveMs + SLACK_MS) return;
    this.#check(user, went, 'missingLeaves', (told) => !told);
  }

  #checkJoins(user) {
    const came = this.cameAt[user];
    if (!this.asks || came < this.calmSince || performance.now() - came < SLACK_MS) return;
    this.#check(user, came, 'missingJoins', (told) => told);
  }

  #check(user, since, what, isRight) {
    for (const watcher of this.followers[user]) {
      if (this.at[watcher] === HERE && this.cameAt[watcher] < since
          && !isRight((this.told[watcher] & this.#bit(watcher, user)) !== 0)) {
        this.#fault(what, `p${watcher} was not told of p${user}`);
      }
    }
  }

  #fault(what, text) {
    this.wrong[what] += 1;
    if (this.first.length < 5) this.first.push(text);
  }

  // ---- as a whole ----

  /** The brain is about to die: what is told late isn't missing until `calm`. */
  storm() { this.calmSince = Infinity; }
  calm() { this.calmSince = performance.now(); }

  /** So many come, at this rate. */
  async gather(count, rate) {
    this.over = false;
    await this.#atRate(rate, count, () => this.come(this.away.draw(this.chance())));
    while ([...this.here].some((user) => this.at[user] !== HERE)) await sleep(100);
  }

  /** As many changes in a second, around so many who are there; one of five is back in time. */
  async comeAndGo(rate, seconds) {
    const target = this.here.size;
    await this.#atRate(rate, Math.round(rate * seconds), () => {
      if (this.here.size < target) {
        this.come(this.away.draw(this.chance()));
        return;
      }
      const user = this.here.draw(this.chance());
      if (this.go(user) && this.chance() < 0.2) {
        this.#later(0.7 * this.leaveMs * this.chance(), () => {
          if (this.at[user] === AWAY) this.seen.returns += 1;
          this.come(user);
        });
      }
    });
  }

  async #atRate(rate, count, change) {
    const began = performance.now();
    for (let n = 0; n < count;) {
      const due = Math.min(count, Math.floor(((performance.now() - began) / 1_000) * rate));
      for (; n < due; n += 1) change();
      await sleep(TICK_MS);
    }
  }

  /** How many of those who are there don't know exactly who of those they follow is. */
  mistaken() {
    let mistaken = 0;
    for (const watcher of this.here) {
      let so = 0;
      for (let n = 0; n < this.perUser; n += 1) {
        if (this.at[this.following[watcher * this.perUser + n]] === HERE) so |= 1 << n;
      }
      if (this.at[watcher] !== HERE || so !== this.told[watcher]) mistaken += 1;
    }
    return mistaken;
  }

  /** For a person: whose session isn't welcomed, and what the first who is mistaken knows. */
  unsettled() {
    const opening = [...this.here].filter((user) => this.at[user] !== HERE);
    const bits = (watcher, isSet) => Array.from({ length: this.perUser }, (_, n) => n)
      .filter(isSet).map((n) => `p${this.following[watcher * this.perUser + n]}`);
    const all = [...this.here].map((watcher) => [watcher,
      bits(watcher, (n) => this.at[this.following[watcher * this.perUser + n]] === HERE),
      bits(watcher, (n) => (this.told[watcher] & (1 << n)) !== 0)]);
    const [first] = all.filter(([, so, told]) => `${so}` !== `${told}`)
      .map(([watcher, so, told]) => `p${watcher} knows of ${told}, there are ${so}`);
    return `not welcomed: ${opening.map((user) => `p${user}`)}; ${first}`;
  }

  /** Waits until all know what is so; gives how many don't in the end. */
  async settle(msMax) {
    const until = performance.now() + msMax;
    while (performance.now() < until) {
      if (this.mistaken() === 0) return 0;
      await sleep(200);
    }
    return this.mistaken();
  }

  /** Nobody comes any more, whoever still goes through `comeAndGo`, until they gather again. */
  leaveAll() {
    this.over = true;
    for (const timer of this.timers) clearTimeout(timer);
    for (const user of [...this.here]) {
      this.sockets.get(user)?.destroy();
      this.sockets.delete(user);
      this.at[user] = AWAY;
      this.wentAt[user] = performance.now();
      this.told[user] = 0;
      this.here.delete(user);
      this.away.add(user);
    }
  }
}
