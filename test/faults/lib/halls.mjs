// Users and visitors who come to halls and go, and publish states (http.md 22, 23), and watchers
// who receive them, while the faults go on. seen.mjs judges their messages.

import { connect } from 'node:net';
import { randomBytes } from 'node:crypto';
import { api, parseJson } from '../../lib/client.mjs';
import { sleep, until, within } from '../../lib/wait.mjs';
import { FrameReader, HttpReader, clientFrame } from './bytes.mjs';
import { Seen } from './seen.mjs';

const HALLS = ['hall/0', 'hall/1', 'hall/2'];
/** Most come to the first one, whose users are then counted at times. */
const FIRST_SHARE = 0.7;
const USERS = 24;
/** Users with two sessions, and visitors. */
const TWINS = 3;
const VISITORS = 3;
const WATCHERS = 4;
const RETRY_MS = 200;
const TICK_MS = 50;
const OPEN_MS_MAX = 15_000;
const ANSWER_MS_MAX = 15_000;
const AWAY_MS = { short: [20, 900], long: [1_000, 5_000] };
const STAY_MS = [50, 1_500];
const WATCH_MS = [2_000, 12_000];
const NOTHING_SHARE = 0.15;
const SETTLE_MS_MAX = 60_000;

let seats = 0;

/** A connection's bytes, until it ends or is given up; gives nothing more afterwards. */
class Line {
  isOver = false;
  #socket;
  #timer;

  constructor(port, head, onData) {
    seats += 1;
    this.name = seats;
    this.#socket = connect({ port, host: '127.0.0.1', noDelay: true });
    this.#socket.on('data', (bytes) => { if (!this.isOver) onData(bytes); });
    for (const end of ['error', 'end', 'close']) this.#socket.on(end, () => this.end());
    this.#socket.write(`${head.join('\r\n')}\r\n\r\n`);
    this.#timer = setTimeout(() => this.end(), OPEN_MS_MAX);
  }

  opened() { clearTimeout(this.#timer); }
  send(bytes) { if (!this.isOver) this.#socket.write(bytes); }
  onEnd = () => {};

  end() {
    if (this.isOver) return;
    this.isOver = true;
    clearTimeout(this.#timer);
    this.#socket.destroy();
    this.onEnd();
  }
}

/** A WebSocket in a hall. */
class Seat {
  isOpen = false;
  #frames = null;
  #http = new HttpReader();
  #answers = new Map();

  constructor(port, user, hall) {
    const query = new URLSearchParams({ ...user && { user }, subject: hall });
    this.line = new Line(port, [`GET /v1/ws?${query} HTTP/1.1`, 'Host: h', 'Upgrade: websocket',
      'Connection: Upgrade', 'Sec-WebSocket-Version: 13',
      `Sec-WebSocket-Key: ${randomBytes(16).toString('base64')}`], (bytes) => this.#feed(bytes));
  }

  #feed(bytes) {
    if (this.#frames) return this.#feedFrames(bytes);
    for (const { head } of this.#http.feed(bytes)) {
      if (head?.status === 101) {
        this.#frames = new FrameReader();
        return this.#feedFrames(this.#http.takeRest());
      }
      if (head) this.line.end();
    }
    return undefined;
  }

  #feedFrames(bytes) {
    for (const { opcode, payload } of this.#frames.feed(bytes)) {
      if (opcode === 9) this.line.send(clientFrame(10, payload));
      else if (opcode === 8) this.line.end();
      else this.#text(parseJson(payload.toString()) ?? {});
    }
  }

  #text({ ref, ok, cursor }) {
    if (ref !== undefined) this.#answers.get(ref)?.(ok !== undefined);
    else if (cursor !== undefined && !this.isOpen) {
      this.line.opened();
      this.isOpen = true;
    }
  }

  /** Whether the session has this state; `false` where nobody knows. */
  async say(data) {
    const ref = this.#answers.size;
    this.line.send(clientFrame(1, Buffer.from(JSON.stringify({ op: 'state', ref, data }))));
    return within('an answer', Promise.race([
      new Promise((resolve) => { this.#answers.set(ref, resolve); }),
      new Promise((resolve) => { this.line.onFail = () => resolve(false); }),
    ]), ANSWER_MS_MAX).catch(() => false);
  }
}

/** One session after the other of a user or, with `user` null, a visitor. */
class Member {
  isOver = false;
  seat = null;
  #hall;
  #value = null;
  #isSaid = true;

  constructor(halls, user, random) {
    Object.assign(this, { halls, user, random });
  }

  /** Comes and goes, until it is over. */
  async run() {
    while (!this.isOver) {
      await this.#rest(this.random.int(...AWAY_MS[this.random.chance(0.3) ? 'short' : 'long']));
      if (this.isOver) return;
      this.#hall = this.random.chance(FIRST_SHARE) ? HALLS[0] : this.random.pick(HALLS);
      for (let n = this.random.int(1, 6); n > 0 && !this.isOver; n -= 1) {
        if (!this.random.chance(NOTHING_SHARE)) this.#next(this.halls.number(this.user));
        else this.#next(null);
        await this.#sit(this.random.int(...STAY_MS));
      }
      if (!this.isOver) this.leave();
    }
  }

  async #rest(ms) {
    const end = Date.now() + ms;
    while (!this.isOver && Date.now() < end) await sleep(TICK_MS);
  }

  #next(value) {
    if (this.user === null) return;
    this.#value = value;
    this.#isSaid = false;
    this.halls.seen.saying(this.user, value);
  }

  /** Stays for so long, comes back when it is dropped, and says what there is to say. */
  async #sit(ms) {
    const end = Date.now() + ms;
    do {
      if (!this.seat?.isOpen) await this.#come();
      else if (!this.#isSaid) await this.#say();
      else await sleep(TICK_MS);
    } while (!this.isOver && Date.now() < end);
  }

  async #come() {
    const seat = new Seat(this.halls.port, this.user, this.#hall);
    this.seat = seat;
    while (!seat.isOpen && !seat.line.isOver && !this.halls.hasEnded) await sleep(5);
    if (!seat.isOpen) {
      seat.line.end();
      await sleep(RETRY_MS);
      return;
    }
    const { seen } = this.halls;
    const hall = this.#hall;
    seen.here(hall, this.user, seat.line.name, performance.now());
    // It comes back and says the same.
    this.#isSaid = this.#value === null;
    seat.line.onEnd = () => {
      seat.isOpen = false;
      seen.away(hall, this.user, seat.line.name, performance.now());
      seat.line.onFail?.();
    };
    if (seat.line.isOver) seat.line.onEnd();
  }

  async #say() {
    const { seat } = this;
    if (await seat.say(this.#value)) {
      this.#isSaid = true;
      if (seat.isOpen) {
        this.halls.seen.said(this.user, seat.line.name, this.#value, performance.now());
      }
    } else {
      await sleep(RETRY_MS);
    }
  }

  leave() {
    this.seat?.line.end();
    this.seat = null;
  }

  /** In the end it is in a hall and says something, or it isn't there. */
  async last(isHere) {
    if (!isHere) {
      this.leave();
      return;
    }
    this.#hall ??= HALLS[1];
    this.#next(this.halls.number(this.user));
    while (!this.halls.hasEnded && !(this.seat?.isOpen && this.#isSaid)) await this.#sit(0);
  }
}

/** Is told of all halls, on one connection after the other. */
class Watcher {
  isOver = false;
  #line = null;

  constructor(halls, name, random) {
    Object.assign(this, { halls, name, random });
  }

  async run() {
    while (!this.halls.hasEnded) {
      if (!this.#line || this.#line.isOver) this.#watch();
      const end = Date.now() + this.random.int(...WATCH_MS);
      while (!this.#line.isOver && (this.isOver || Date.now() < end)
          && !this.halls.hasEnded) await sleep(TICK_MS);
      this.#line.end();
      await sleep(RETRY_MS);
    }
  }

  #watch() {
    const { seen, port } = this.halls;
    const http = new HttpReader();
    let rest = '';
    seen.watches(this.name);
    const line = new Line(port, [`GET /v1/stream?user=${this.name}&presence=${HALLS} HTTP/1.1`,
      'Host: h', 'Accept: text/event-stream'], (bytes) => {
      for (const { head, body, end } of http.feed(bytes)) {
        if (end || (head && head.status !== 200)) line.end();
        if (head) line.opened();
        if (!body || line.isOver) continue;
        const lines = (rest + body.toString()).split('\n');
        rest = lines.pop();
        for (const text of lines) if (text.startsWith('data: {"presence":')) this.#take(text);
      }
    });
    this.#line = line;
  }

  #take(text) {
    const { presence } = JSON.parse(text.slice('data: '.length));
    this.halls.seen.take(this.name, presence, performance.now());
  }
}

export class Halls {
  hasEnded = false;
  #numbers = new Map();
  #running = [];

  constructor(world, leaveMs, random) {
    this.world = world;
    const users = Array.from({ length: USERS }, (_, n) => `r${n}`);
    const twins = users.slice(0, TWINS);
    this.seen = new Seen(leaveMs, twins);
    const names = [...users, ...twins, ...Array.from({ length: VISITORS }, () => null)];
    this.members = names.map((user, n) => new Member(this, user, random.fork(`member ${n}`)));
    this.watchers = Array.from({ length: WATCHERS }, (_, n) =>
      new Watcher(this, `y${n}`, random.fork(`watcher ${n}`)));
  }

  get port() { return this.world.publicPort; }

  /** What a user says next. */
  number(user) {
    const n = (this.#numbers.get(user) ?? 0) + 1;
    this.#numbers.set(user, n);
    return { n };
  }

  begin() {
    this.#running = this.members.map((member) => member.run());
    this.watching = this.watchers.map((watcher) => watcher.run());
  }

  wasLate(ms) {
    this.seen.lateMs = Math.max(this.seen.lateMs, ms);
  }

  /** No more faults: all that is so must be known, and be in the pages. */
  async settle() {
    const { members, seen, watchers, world } = this;
    for (const one of [...members, ...watchers]) one.isOver = true;
    await within('who comes to a hall is there', Promise.all(this.#running), SETTLE_MS_MAX);
    for (const [n, member] of members.entries()) {
      await within('it says its last', member.last(n % 3 !== 0), SETTLE_MS_MAX);
    }
    const mistaken = () => seen.mistaken(watchers.map(({ name }) => name), HALLS);
    await until('all is known', () => mistaken().length === 0, SETTLE_MS_MAX)
      .catch(() => world.wrong(`halls: ${mistaken()[0]}`));
    for (const hall of HALLS) await this.#page(hall);
    for (const text of seen.wrong) world.wrong(`halls: ${text}`);
  }

  async #page(hall) {
    const path = `/v1/subjects/${encodeURIComponent(hall)}/presence?limit=1000`;
    const answer = await api(this.world.server.halley, 'GET', path, undefined, this.world.headers);
    const so = Seen.text(this.seen.so(hall));
    const told = answer.status === 200 ? Seen.text(answer.json) : `${answer.status}`;
    if (told !== so) this.world.wrong(`halls: the page of ${hall} has ${told}, it is: ${so}`);
  }

  /** For the table. */
  get counts() {
    return Object.fromEntries(Object.entries(this.seen.count)
      .map(([what, n]) => [`halls: ${what}`, n]));
  }

  end() {
    this.hasEnded = true;
    for (const member of this.members) {
      member.isOver = true;
      member.leave();
    }
  }
}
