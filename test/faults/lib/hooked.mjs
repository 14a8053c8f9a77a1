// The right hooks, by the acts of the checker's users: pure, so that tests can feed it lies.
//
// Numbered events of some users must come without a hole and in order, as published and, if they
// are for users who are never there, as undelivered (`Watch`). A user's hooks must be opened,
// closed, opened and so on, each once but for repetitions under the same id; no user may be
// reported as closed who was there within `closedAfterMs` before; and in the end the last one must
// be the true state. Subjects are occupied and vacated in the same way.
//
// The times at which a user was there are as its client saw them. That is less than the server saw,
// unless the checker was held up and noticed late that a session had ended.

import { Watch } from '../../lib/hooks-checker.mjs';

/** A client learns of its welcome late, and the server of its end. */
const SLACK_MS = 300;
const WRONGS_MAX = 20;

export class Sessions {
  #closedAfterMs;
  #slackMs = SLACK_MS;
  #spans = new Map();
  #last = new Map();
  #seen = new Set();
  count = 0;
  wrong = [];

  constructor(closedAfterMs) {
    this.#closedAfterMs = closedAfterMs;
  }

  /** The checker was held up for so long. */
  late(ms) {
    this.#slackMs = Math.max(this.#slackMs, SLACK_MS + ms);
  }

  /** The user's client was welcomed, or ended, at this time of the wall. */
  here(user, at) {
    this.#spans.set(user, [...this.#spans.get(user) ?? [], { from: at, to: Infinity }]);
  }

  away(user, at) {
    const span = this.#spans.get(user)?.at(-1);
    if (span?.to === Infinity) span.to = at;
  }

  hook({ id, type, user, at }) {
    if (this.#seen.has(id)) return;
    this.#seen.add(id);
    this.count += 1;
    const last = this.#last.get(user) ?? 'closed';
    if (type === last) this.#fault(`${user} is told as ${type} twice, at ${at}`);
    this.#last.set(user, type);
    if (type === 'closed') this.#closed(user, at);
  }

  #closed(user, at) {
    const since = at - this.#closedAfterMs;
    for (const { from, to } of this.#spans.get(user) ?? []) {
      const ms = Math.min(to, at) - Math.max(from, since);
      if (ms > this.#slackMs) {
        this.#fault(`${user} is told as closed at ${at}, and was there for ${ms} ms of the `
          + `${this.#closedAfterMs} ms before`);
      }
    }
  }

  #fault(text) {
    if (this.wrong.length < WRONGS_MAX) this.wrong.push(text);
  }

  /** Users of whom the last hook isn't what is so. */
  mistaken(users, isHere) {
    return users.filter((user) => (this.#last.get(user) === 'opened') !== isHere(user));
  }
}

const SUBJECT_TYPES = { occupied: 'opened', vacated: 'closed' };

export class Hooked {
  #watch = new Watch();
  #wrong = [];
  subjects = new Sessions(0);
  gaps = 0;

  /** @param mayGap whether it may be told now that something is missing */
  constructor(closedAfterMs, mayGap = () => false) {
    this.sessions = new Sessions(closedAfterMs);
    this.mayGap = mayGap;
    // Nobody looks at how long they took.
    this.#watch.isLive = false;
  }

  get numbers() { return this.#watch.numbers; }

  take(hook) {
    const { type } = hook;
    if (type === 'gap') this.#gap(hook);
    else if (type === 'opened' || type === 'closed') this.sessions.hook(hook);
    else if (type in SUBJECT_TYPES) {
      this.subjects.hook({ ...hook, user: hook.subject, type: SUBJECT_TYPES[type] });
    } else this.#watch.take(hook);
  }

  #gap(hook) {
    this.gaps += 1;
    if (!this.mayGap() && this.#wrong.length < WRONGS_MAX) {
      this.#wrong.push(`a gap: ${JSON.stringify(hook)}`);
    }
  }

  /** What is not told yet of all that these publishers' events, users and subjects owe. */
  owed(publishers, users, isHere, occupied) {
    const events = this.#watch.missing(publishers);
    const sessions = this.sessions.mistaken(users, isHere);
    const subjects = this.subjects.mistaken(occupied, () => true);
    return [events > 0 && `${events} of numbered events`,
      sessions.length > 0 && `opened or closed of ${sessions.join(', ')}`,
      subjects.length > 0 && `occupied of ${subjects.join(', ')}`].filter(Boolean);
  }

  /** What was told and must not be. */
  wrong() {
    return [...this.#wrong, ...this.#watch.numbers.early.slice(0, WRONGS_MAX),
      ...this.sessions.wrong, ...this.subjects.wrong];
  }

  /** For the table. */
  get counts() {
    return { 'hooks of events': this.#watch.count, 'hooks of users': this.sessions.count,
      'hooks of subjects': this.subjects.count, 'hooks: gaps': this.gaps };
  }
}
