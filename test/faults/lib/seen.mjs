// Watchers' messages about the users of some halls and their *states*, compared with the truth.
// Pure, so that tests can feed it lies (seen.test.mjs).
//
//   here, away     a session of a user, or of a visitor (user null), is in a hall, as its client
//                  saw it: that is less than the server saw
//   saying, said   a session is about to say a state, and was answered; `{n}`, or null for none
//   watches        a watcher begins anew and knows nothing
//   take           it got this
//
// All that is in a hall comes first. A leave of who wasn't away for `leaveMs` is wrong. So is a
// state that its user never said, one older than another that the watcher knows already, and none
// where there was one for long. In the end everybody knows exactly who is there, how many, and
// what they say.

/** Of clients and server together, behind a change. */
const SLACK_MS = 5_000;
/** Timers of a client and of the server aren't equally exact. */
const TIMER_MS = 10;
const WRONGS_MAX = 10;

const of = (map, key, make) => {
  if (!map.has(key)) map.set(key, make());
  return map.get(key);
};

/** A user's time in a hall, over all of its sessions there. */
class Stay {
  sessions = new Set();
  cameAt = -Infinity;
  wentAt = -Infinity;
  /** How long the last absence was. */
  absence = Infinity;
}

export class Seen {
  count = { states: 0, counted: 0, joins: 0, leaves: 0, updates: 0, numbers: 0 };
  wrong = [];
  lateMs = 0;
  #stays = new Map();
  #visitors = new Map();
  /** user -> {asked: Set of n, said: Map session -> {data, at}} */
  #users = new Map();
  /** watcher -> hall -> {users: Set or null, states: Map, visitors, online} */
  #known = new Map();
  /** watcher and user -> the newest number that it was told */
  #newest = new Map();

  /** @param manyOf users with several sessions, whose older state may be seen again */
  constructor(leaveMs, manyOf = []) {
    this.leaveMs = leaveMs;
    this.manyOf = new Set(manyOf);
  }

  #fault(text) {
    if (this.wrong.length < WRONGS_MAX) this.wrong.push(text);
  }

  #stay(hall, user) {
    return of(of(this.#stays, hall, () => new Map()), user, () => new Stay());
  }

  #sayer(user) {
    return of(this.#users, user, () => ({ asked: new Set(), said: new Map() }));
  }

  here(hall, user, session, at) {
    if (user === null) {
      of(this.#visitors, hall, () => new Set()).add(session);
      return;
    }
    const stay = this.#stay(hall, user);
    if (stay.sessions.size === 0) {
      stay.cameAt = at;
      stay.absence = at - stay.wentAt;
    }
    stay.sessions.add(session);
  }

  away(hall, user, session, at) {
    if (user === null) {
      this.#visitors.get(hall)?.delete(session);
      return;
    }
    const stay = this.#stay(hall, user);
    if (stay.sessions.delete(session) && stay.sessions.size === 0) stay.wentAt = at;
    this.#sayer(user).said.delete(session);
  }

  saying(user, data) {
    if (data !== null) this.#sayer(user).asked.add(data.n);
  }

  said(user, session, data, at) {
    const { said } = this.#sayer(user);
    const before = said.get(session);
    // The last one is what counts.
    said.delete(session);
    const since = before?.data != null && data !== null ? before.since : at;
    said.set(session, { data, since });
  }

  /** What its sessions say, the last that was said; null for nothing. */
  #state(user) {
    return [...this.#sayer(user).said.values()].at(-1) ?? { data: null, since: Infinity };
  }

  // ---- what is told ----

  watches(watcher) {
    this.#known.set(watcher, new Map());
  }

  take(watcher, message, at) {
    const { subject: hall, user, state } = message;
    const halls = of(this.#known, watcher, () => new Map());
    if ('users' in message) this.#replace(watcher, halls, message, at);
    else if (!halls.has(hall)) {
      this.#fault(`${watcher} is told a change first: ${JSON.stringify(message)}`);
    } else if (user === undefined) {
      this.#number(halls.get(hall), message.online);
    } else {
      this.#change(watcher, halls.get(hall), { hall, user, state, data: message.data }, at);
    }
  }

  #replace(watcher, halls, { subject: hall, online, users, states = {} }, at) {
    this.count.states += 1;
    const before = halls.get(hall);
    if (users === null) {
      this.count.counted += 1;
      halls.set(hall, { users: null, states: new Map(), online });
      return;
    }
    for (const user of before?.users ?? []) {
      if (!users.includes(user)) this.#hasLeft(watcher, hall, user, at);
    }
    for (const user of users) {
      this.#wasTold(watcher, user, states[user] ?? null);
      // Who is there for the first time says nothing before it is answered.
      if (before?.users?.has(user)) this.#lacks(watcher, user, states[user], at);
    }
    halls.set(hall, { users: new Set(users), states: new Map(Object.entries(states)),
      visitors: online - users.length });
  }

  #number(known, online) {
    this.count.numbers += 1;
    if (known.users === null) known.online = online;
    else known.visitors = online - known.users.size;
  }

  #change(watcher, known, { hall, user, state, data }, at) {
    if (known.users === null) {
      this.#fault(`${watcher} is told of ${user} in ${hall}, whose users are counted`);
    } else if (state === 'join') {
      this.count.joins += 1;
      known.users.add(user);
      this.#wasTold(watcher, user, data ?? null);
      if (data !== undefined) known.states.set(user, data);
    } else if (state === 'leave') {
      this.count.leaves += 1;
      if (known.users.delete(user)) this.#hasLeft(watcher, hall, user, at);
      known.states.delete(user);
    } else {
      this.count.updates += 1;
      this.#wasTold(watcher, user, data);
      if (data !== null) known.states.set(user, data);
      else if (known.states.delete(user)) this.#lacks(watcher, user, undefined, at);
    }
  }

  #hasLeft(watcher, hall, user, at) {
    const stay = this.#stay(hall, user);
    const isHere = stay.sessions.size > 0;
    const wasMs = isHere ? stay.absence : at - stay.wentAt;
    const backMs = isHere ? at - stay.cameAt : 0;
    if (wasMs < this.leaveMs - TIMER_MS - this.lateMs || backMs > SLACK_MS + this.lateMs) {
      this.#fault(`${watcher}: ${user} is said to have left ${hall}, was away for ${wasMs} ms, `
        + `is back for ${backMs} ms`);
    }
  }

  #wasTold(watcher, user, data) {
    if (data === null) return;
    if (!this.#sayer(user).asked.has(data.n)) {
      this.#fault(`${watcher}: ${user} never said ${JSON.stringify(data)}`);
    }
    const key = `${watcher} ${user}`;
    const newest = this.#newest.get(key) ?? 0;
    if (data.n < newest && !this.manyOf.has(user)) {
      this.#fault(`${watcher}: ${user} is told to say ${data.n} after ${newest}`);
    }
    this.#newest.set(key, Math.max(newest, data.n));
  }

  /** It is told that a user says nothing. */
  #lacks(watcher, user, data, at) {
    if (data !== undefined || this.manyOf.has(user)) return;
    const { data: now, since } = this.#state(user);
    if (now !== null && at - since > SLACK_MS + this.lateMs) {
      this.#fault(`${watcher}: ${user} is told to say nothing, and says ${now.n} for ${at - since
      } ms`);
    }
  }

  // ---- in the end ----

  /** What is so in a hall: `{online, users, states}`, as a page of it has them. */
  so(hall) {
    const users = [...this.#stays.get(hall) ?? []]
      .filter(([, { sessions }]) => sessions.size > 0).map(([user]) => user).sort();
    const states = users.map((user) => [user, this.#state(user).data])
      .filter(([, data]) => data !== null);
    return { online: users.length + (this.#visitors.get(hall)?.size ?? 0), users,
      states: Object.fromEntries(states) };
  }

  #knows(watcher, hall) {
    const known = this.#known.get(watcher)?.get(hall);
    if (known === undefined) return 'nothing';
    if (known.users === null) return `${known.online}`;
    return Seen.text({ online: known.users.size + known.visitors, users: [...known.users],
      states: Object.fromEntries(known.states) });
  }

  static text({ online, users, states = {} }) {
    const sorted = [...users].sort();
    const said = sorted.filter((user) => user in states)
      .map((user) => `${user}:${states[user].n}`);
    return `${online} ${sorted} ${said}`;
  }

  /** Who doesn't know what is so; of a hall whose users are counted it is their number. */
  mistaken(watchers, halls) {
    return watchers.flatMap((watcher) => halls.flatMap((hall) => {
      const so = this.so(hall);
      const known = this.#knows(watcher, hall);
      return known === Seen.text(so) || known === `${so.online}` ? []
        : [`${watcher} knows of ${hall}: ${known}, it is: ${Seen.text(so)}`];
    }));
  }
}
