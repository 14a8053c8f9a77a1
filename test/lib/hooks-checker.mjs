// Proves that hooks are sent at least once and in order for each user, whatever fails: users
// publish numbered events, and an endpoint that is down for a while, answers 500 now and then, and
// belongs to a brain that is killed, must have seen every number that was acknowledged.
//
// Each user publishes a request of some lines at a time, one about a subject, the next to a user
// who is never there, and the same again under the same ids until it is acknowledged. So each event
// is reported as published, and each second request as undelivered; the numbers of both must come
// without a hole, whatever an event is about. One that comes again comes with a number that was
// seen. Of a request that had to be tried again some lines may have been accepted before others, on
// a full disk for one: then its numbers come in any order, before those of the next request.

import { Endpoint, SECRET } from './endpoint.mjs';
import { http } from './client.mjs';
import { freePort, prepare, scratchFile } from './halley.mjs';
import { metric } from './metrics.mjs';
import { sleep, until } from './wait.mjs';

const LINES = 10;
const RETRY_MS = 100;

/** A generator of numbers below 1 that a seed repeats (mulberry32). */
function randomOf(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6D2B79F5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

/** Sees numbers in order: what comes twice, what is missing, what comes too early. */
export class Numbers {
  #next = new Map();
  #ahead = new Map();
  #early = [];
  #again = new Set();
  repeated = 0;

  see(name, number) {
    const next = this.seen(name);
    const ahead = this.#ahead.get(name) ?? new Set();
    if (number < next || ahead.has(number)) {
      this.repeated += 1;
    } else if (number > next) {
      this.#ahead.set(name, ahead.add(number));
      this.#early.push({ name, number, next });
    } else {
      let after = number + 1;
      while (ahead.delete(after)) after += 1;
      this.#next.set(name, after);
    }
  }

  /** All before this number have come. */
  seen(name) { return this.#next.get(name) ?? 0; }

  /** The request that begins with this number was tried more than once. */
  tried(name, first) { this.#again.add(`${name} ${first}`); }

  /** What came before one that it must not come before. */
  get early() {
    const mayBe = ({ name, number, next }) => {
      const first = number - number % LINES;
      return next >= first && this.#again.has(`${name} ${first}`);
    };
    return this.#early.filter((one) => !mayBe(one))
      .map(({ name, number, next }) => `${name}: ${number} before ${next}`);
  }
}

/** What comes of the events that users publish. */
export class Watch {
  numbers = new Numbers();
  delays = [];
  count = 0;
  isLive = true;

  take({ type, user: by, users, event }) {
    if (event === undefined) throw new Error(`${type} is no hook of an event`);
    const { number, serial } = event.data;
    if (type === 'published') this.numbers.see(`published ${by}`, serial);
    else for (const name of users) this.numbers.see(`undelivered ${name}`, number);
    this.count += 1;
    if (this.isLive && type === 'published') this.delays.push(Date.now() - event.at);
  }

  /** How many hooks of these users' acknowledged events have not come. */
  missing(users) {
    const left = (name, count) => Math.max(0, count - this.numbers.seen(name));
    return users.reduce((sum, { name, acked }) => sum
      + left(`published ${name}`, acked.about + acked.to)
      + left(`undelivered away-${name}`, acked.to), 0);
  }
}

export class User {
  sent = { about: 0, to: 0 };
  acked = { about: 0, to: 0 };

  /** @param numbers hears of requests that are tried again */
  constructor(name, numbers) {
    this.name = name;
    this.numbers = numbers;
  }

  /** One request, until it is acknowledged or `isOver`. */
  async publish(halley, kind, isOver = () => false) {
    const first = this.sent[kind];
    const before = this.sent.about + this.sent.to;
    this.sent[kind] += LINES;
    const whom = kind === 'to' ? { to: [`away-${this.name}`] } : { subject: `room/${this.name}` };
    const body = Array.from({ length: LINES }, (_, n) => JSON.stringify({ ...whom,
      id: `${kind}-${first + n}`, data: { number: first + n, serial: before + n } })).join('\n');
    for (; !isOver(); await sleep(RETRY_MS)) {
      try {
        const answer = await http('POST', `${halley.publicUrl}/v1/me/events?user=${this.name}`,
          { body, headers: { 'content-type': 'application/x-ndjson' } });
        const lines = answer.body.trim().split('\n').map((line) => JSON.parse(line));
        if (answer.status === 200 && lines.length === LINES && lines.every(({ id }) => id)) {
          this.acked[kind] += LINES;
          return;
        }
      } catch {
        // No brain just now, or no answer: again, under the same ids.
      }
      this.numbers.tried(`published ${this.name}`, before);
      if (kind === 'to') this.numbers.tried(`undelivered away-${this.name}`, first);
    }
  }
}

/** Publishes `rate` events/s in all until `isOver`; answers how many were acknowledged. */
async function publishAll(halley, users, rate, isOver) {
  const pauseMs = 1000 * users.length * LINES / rate;
  const begin = Date.now();
  await Promise.all(users.map(async (user, n) => {
    for (let turn = 0; !isOver(); turn += 1) {
      const due = begin + (turn + n / users.length) * pauseMs;
      await sleep(Math.max(0, due - Date.now()));
      await user.publish(halley, turn % 2 === 0 ? 'about' : 'to');
    }
  }));
}

async function killsOf(halley, kills, seconds, random, say) {
  for (let n = 0; n < kills; n += 1) {
    await sleep((0.3 + random() * 0.7) * 1000 * seconds / kills);
    await halley.killBrain();
    await halley.start();
    say(`kill ${n + 1} of ${kills}`);
  }
}

function cpuSeconds(pid, read) {
  const fields = read(`/proc/${pid}/stat`).split(') ')[1].split(' ');
  return (Number(fields[11]) + Number(fields[12])) / 100;
}

/**
 * Runs it; answers what was seen. `down`: for so many seconds nobody listens at the endpoint, a
 * quarter of the time after the begin. `flaky`: the share of requests that are answered 500.
 */
export async function checkHooks({ rate, seconds, down = 0, kills = 0, flaky = 0,
  users: size = 100, seed = 1, settings = {}, say = () => {}, read }) {
  const random = randomOf(seed);
  const endpoint = new Endpoint(await freePort());
  const watch = new Watch();
  endpoint.take = (hook) => watch.take(hook);
  endpoint.answer = () => (random() < flaky ? 500 : 204);
  await endpoint.start();
  const halley = await prepare({ settings: { HALLEY_HOOKS_URL: endpoint.url,
    HALLEY_HOOKS_EVENTS: 'published,undelivered', HALLEY_HOOKS_USERS: 'away-*,u*',
    HALLEY_HOOKS_SUBJECTS: 'room/*', HALLEY_HISTORY_RETENTION: '60m', ...settings } });
  halley.settings.HALLEY_HOOKS_SECRET_FILE = scratchFile(halley, 'secret', `${SECRET}\n`);
  await halley.start();
  const users = Array.from({ length: size }, (_, n) => new User(`u${n}`, watch.numbers));
  const end = Date.now() + seconds * 1000;
  const publishing = publishAll(halley, users, rate, () => Date.now() >= end);
  const killing = killsOf(halley, kills, seconds, random, say);
  let back = null;
  if (down > 0) {
    await sleep(Math.max(0, seconds - down) * 250);
    watch.isLive = false;
    await endpoint.stop();
    say('the endpoint is down');
    await sleep(down * 1000);
    await endpoint.start();
    back = Date.now();
    const waiting = await metric(halley, 'halley_hooks_waiting_bytes').catch(() => 'some');
    say(`the endpoint is back; ${waiting} bytes wait`);
  }
  await publishing;
  await killing;
  const ended = Date.now();
  const sum = (of) => users.reduce((total, user) => total + of(user), 0);
  await until('every hook is told', () => watch.missing(users) === 0,
    60_000 + down * 1000 + kills * 4000).catch(() => {});
  const drained = Date.now();
  const result = {
    acked: sum((user) => user.acked.about + user.acked.to), hooks: watch.count,
    lost: watch.missing(users), disorder: watch.numbers.early, repeated: watch.numbers.repeated,
    forged: endpoint.forged, requests: endpoint.requests,
    caughtUpS: back === null ? null : (drained - back) / 1000, tailS: (drained - ended) / 1000,
    delays: watch.delays.sort((a, b) => a - b),
    brainCpuS: read && cpuSeconds(halley.brainPid(), read),
  };
  await halley.stop();
  await endpoint.stop();
  return result;
}
