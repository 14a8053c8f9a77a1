// A user's entries, read as *chains*: connections that a cursor ties together.
//
// A chain begins with a welcome to a client that had no cursor. While the client comes back with
// cursors it goes on; when it comes back without one (or with an invalid one), it is left and the
// next begins. A chain has *kept* the events that its client knows: an event or gap that came after
// the cursor with which the client went on doesn't count, the server has to bring it again. So a
// client that crashes, and one that goes back to an old cursor, are the same case.
//
// Here is found what one user's entries show: a wrong order, a copy on the same connection, a gap
// or a close without cause. Missing events need all of the history: verdict.mjs.

import { countOf, surelyNewer } from './counts.mjs';
import { LetIn } from './let_in.mjs';
import { parts } from './parts.mjs';
import { hidden, isEnded, mayHideIts } from './forgotten.mjs';

const CLOSE_GRACE_MS = 3_000;
/** Within this, what the server does to a client that was late is for that. */
const LATE_GRACE_MS = 10_000;
/** A token's end is looked at in time, leeway included, unless the edge stands still. */
const OUTLIVED_MS = 15_000;
const EXPIRED = 'end: token_expired';

class Chain {
  kept = [];
  opened = null;
  left = null;
  /** When its first event came: what it was to begin with had been read by then. */
  readBy = { t: Infinity, ms: Infinity };
  /** id -> the first kept entry */
  first = new Map();
  /** subject -> the kept entry whose publish was begun last */
  newest = new Map();
  /** Answers to `subscribe` with `last`. No cursor covers what is in them: it isn't forgotten. */
  answers = [];
  aside = [];
  /** id -> the last answer that had it */
  answered = new Map();

  constructor(connect) {
    this.connect = connect;
  }

  /** The client goes on from a cursor that covers `count` of what is kept. */
  rewind(count, events) {
    if (count === this.kept.length) return;
    const kept = this.kept.slice(0, count);
    this.kept = [];
    this.first.clear();
    this.newest.clear();
    for (const entry of kept) this.keep(entry, events.get(entry.id));
  }

  /** It came, with a cursor or in an answer. */
  has(id) {
    return this.first.has(id) || this.answered.has(id);
  }

  answer(answer) {
    this.answers.push(answer);
    this.aside.push(...answer.entries);
    for (const { id } of [...answer.entries, answer.kept ?? {}]) {
      if (id !== undefined) this.answered.set(id, answer);
    }
  }

  keep(entry, event) {
    this.kept.push(entry);
    if (entry.type !== 'event') return;
    if (entry.t < this.readBy.t) this.readBy = entry;
    if (!event || this.first.has(entry.id)) return;
    this.first.set(entry.id, entry);
    const newest = this.newest.get(entry.subject);
    if (!newest || newest.event.begun < event.begun) {
      this.newest.set(entry.subject, { entry, event });
    }
  }
}

/** Was it for the user alone, or was the user subscribed, or a follower for the whole of the time
 *  from `begun` to `acked`? `'maybe'` if it changed in between. */
export function followed(history, user, event, until = event.acked ?? Infinity) {
  const each = parts(history, event).map((part) => followedOne(history, user, part, until));
  return ['yes', 'maybe'].find((answer) => each.includes(answer)) ?? 'no';
}

function followedOne(history, user, event, until) {
  if (history.subscribed.get(user)?.has(event.subject)) return 'yes';
  return followedWithout(history, user, event, until);
}

/** Likewise, whatever the user is subscribed to. */
function followedWithout(history, user, event, until) {
  const alone = history.privates.get(event.subject);
  if (alone) return alone.has(user) ? 'yes' : 'no';
  if (event.subject === user) return 'yes';
  const operations = history.follows.get(user)?.get(event.subject) ?? [];
  let last = null;
  for (const operation of operations) if (operation.begun < until) last = operation;
  if (last === null) return 'no';
  if (last.acked === null || last.acked > event.begun) return 'maybe';
  return last.op === 'follow' ? 'yes' : 'no';
}

export const isSubscribed = (history, user, event) => parts(history, event)
  .some(({ subject }) => history.subscribed.get(user)?.has(subject));

/** A follow counts from when it was made, whatever the cursor. A record in the log says so, written
 *  but not synced: it can be the one that was damaged or cut off, or that the power took. */
function lostItsFollow(history, user, event, entry) {
  const { follows, faults, cuts } = history;
  const later = parts(history, event)
    .flatMap(({ subject }) => follows.get(user)?.get(subject) ?? [])
    .filter(({ op, begun }) => op === 'follow' && begun > event.acked);
  return later.some(({ begun, acked }) =>
    faults.some((fault) => (fault.power || fault.damages || fault.away)
      && (fault.ended ?? Infinity) > begun && fault.begun < entry.t)
    || cuts.some(({ t, from }) => t > begun && (acked === null || acked > from)));
}

const duringFault = (history, entry, effect) => history.faults.some((fault) =>
  fault[effect] && fault.begun < entry.t
    && (fault.ended === null || entry.ms <= fault.endedMs + CLOSE_GRACE_MS));

/** A link was away at some time after that, and before the entry's event came. */
const linkBroke = ({ faults }, sinceMs, entry) => faults.some((fault) =>
  (fault.kills || fault.closes || fault.links) && fault.begun < entry.t
    && (fault.endedMs ?? Infinity) + CLOSE_GRACE_MS >= sinceMs);

/** There was a fault before `t` that makes a part of the log unreadable. */
export const mayBeDamaged = ({ damage, faults }, t) => faults.some((fault) => fault.begun < t
  && (fault.fills || fault.power || (fault.damages && damage.size > 0)));

class Reader {
  chains = [];
  found = [];
  duplicates = { afterResume: 0, afterRetry: 0, early: 0, answered: 0 };
  gaps = {};
  received = 0;
  connections = 0;
  expired = 0;
  turnedAway = 0;
  turnedOut = 0;
  #chain = null;
  #stalls = new Set();
  /** connection -> when it was late last */
  #late = new Map();
  #began = 0;
  /** When the connection's token expires, if it has one. */
  #expMs;
  /** subject -> when the connection asked for it; undefined where it said all at once. */
  #asked;
  #letIn;

  constructor(history, user, about) {
    this.history = history;
    this.user = user;
    this.about = about;
    this.#letIn = new LetIn(history, user);
  }

  #violation(kind, entry, text, more = {}) {
    this.found.push({ kind, user: this.user, t: entry.t, text, ...more });
  }

  connect(entry) {
    if (entry.keep === 'none' || entry.keep === 'bad' || this.#chain === null) {
      if (this.#chain) this.#chain.left = entry;
      this.#chain = new Chain(entry);
      this.chains.push(this.#chain);
    } else {
      this.#chain.rewind(entry.keep, this.history.events);
    }
    this.connections += 1;
    this.#began = entry.t;
    this.#expMs = entry.expMs;
    this.#asked = entry.byOperations ? new Map() : undefined;
    this.#letIn.connect(entry);
  }

  /** What is wrong with a session's being there, or being refused, if anything is. */
  #isWrong(kind, entry, text) {
    if (text !== undefined) this.#violation(kind, entry, text);
  }

  #lives(entry) {
    this.#isWrong('let in', entry, this.#letIn.enters(entry));
    this.#isWrong('stayed', entry, this.#letIn.stays(entry));
  }

  refused(entry) {
    this.turnedAway += 1;
    this.#isWrong('turned away', entry, this.#letIn.refused(entry));
  }

  /** An operation to subscribe was answered; with `last`, by the newest events about it. */
  answer(entry) {
    this.#asked?.set(entry.subject, entry.asked);
    if (entry.last === undefined) return;
    const isDamaged = mayBeDamaged(this.history, entry.t);
    for (const one of entry.entries) {
      Object.assign(one, { t: entry.t, ms: entry.ms, conn: entry.conn });
      // That retention has taken older ones is no gap there.
      if (one.type === 'gap') one.just = one.reason === 'damaged' && isDamaged;
    }
    this.#chain.answer(entry);
  }

  open(entry) {
    // A poll with a cursor says so before it is asked.
    if (entry.transport !== 'poll') this.#lives(entry);
    this.#chain.opened ??= entry;
  }

  stall(entry) {
    this.#stalls.add(entry.conn);
  }

  late(entry) {
    this.#late.set(entry.conn, entry.ms);
  }

  /** The client did not read when it should have. */
  #wasSlow({ conn, ms }) {
    return this.#stalls.has(conn) || ms - (this.#late.get(conn) ?? -Infinity) < LATE_GRACE_MS;
  }

  garbled(entry) {
    this.#violation('garbled', entry, `bytes that are no event: ${entry.text}`);
  }

  event(entry) {
    this.received += 1;
    this.#lives(entry);
    if (entry.ms > this.#expMs + OUTLIVED_MS) {
      this.#violation('outlived', entry, `${entry.ms - this.#expMs} ms after its token expired`);
    }
    const chain = this.#chain;
    const event = this.history.events.get(entry.id);
    const about = { id: entry.id, subject: entry.subject };
    if (!event || event.subject !== entry.subject || event.n !== entry.n || !entry.whole) {
      this.#violation('garbled', entry, 'an event that was not published like this', about);
      chain.keep(entry, undefined);
      return;
    }
    if (hidden(this.history, this.user, event, { begun: this.#began, ended: entry.t }) === 'yes') {
      this.#violation('shown again', entry, 'from before a user was deleted', about);
    }
    const until = event.acked ?? entry.t;
    if (followed(this.history, this.user, event, until) === 'no'
        && !lostItsFollow(this.history, this.user, event, entry)) {
      this.#violation('uninvited', entry, 'an event about a subject that was not followed', about);
    }
    if (event.acked !== null && event.acked < chain.connect.t && !this.#isWished(event)) {
      // A welcome's cursor is the link's (link.md 10.1): it may be a little older than the welcome.
      // And a link that comes back sends what it missed to whoever is there then.
      // Of a subject whose newest were asked for there may be more if that was while they came.
      const isResumed = entry.conn !== chain.connect.conn;
      const isMore = chain.connect.last !== undefined
        && isSubscribed(this.history, this.user, event);
      const sinceMs = isMore ? chain.connect.ms : event.begunMs;
      if (isResumed || linkBroke(this.history, sinceMs, entry)) this.duplicates.early += 1;
      else this.#violation('stray', entry, 'from before a connection without cursor', about);
    }
    const first = chain.first.get(entry.id);
    if (first) this.#copy(entry, first, event);
    else this.#order(entry, event);
    if (chain.answered.get(entry.id)?.conn === entry.conn) this.#again(entry, event);
    chain.keep(entry, event);
  }

  /** It was in an answer of this connection. It may come live as well if it was published while
   *  that was under way, or was on its way for another reason, and where a link catches up. */
  #again(entry, event) {
    const mayCome = this.#asked === undefined || event.acked === null || event.unknown > 0
      || this.history.damage.has(entry.id) || linkBroke(this.history, event.begunMs, entry)
      || parts(this.history, event).some((part) =>
        followedWithout(this.history, this.user, part, event.acked) !== 'no'
        || this.#asked.get(part.subject) < event.acked);
    if (mayCome) this.duplicates.answered += 1;
    else {
      this.#violation('doubled', entry, 'live, and in an answer that was asked for behind it',
        { id: entry.id, subject: entry.subject });
    }
  }

  /** May it be one of the newest that the chain asked for? */
  #isWished(event) {
    const { last, t } = this.#chain.connect;
    return last !== undefined && parts(this.history, event).some(({ subject }) =>
      this.history.subscribed.get(this.user)?.has(subject)
      && surelyNewer(this.history, this.about.get(subject), event, t)
        < Math.min(last, countOf(this.history, subject)));
  }

  #copy(entry, first, event) {
    if (first.conn !== entry.conn) this.duplicates.afterResume += 1;
    else if (event.unknown > 0 || this.history.damage.has(entry.id)) {
      this.duplicates.afterRetry += 1;
    } else {
      this.#violation('doubled', entry, 'the same event twice on one connection',
        { id: entry.id, subject: entry.subject });
    }
  }

  #order(entry, event) {
    const newest = this.#chain.newest.get(entry.subject);
    if (newest && event.acked !== null && event.acked < newest.event.begun
        && !this.history.damage.has(entry.id)) {
      this.#violation('reordered', entry, `after ${newest.entry.id}, which was published later`,
        { id: entry.id, subject: entry.subject });
    }
  }

  gap(entry) {
    this.gaps[entry.reason] = (this.gaps[entry.reason] ?? 0) + 1;
    entry.just = this.#isJust(entry);
    if (!entry.just) this.#violation('unjust gap', entry, `a gap without cause: ${entry.reason}`);
    this.#chain.keep(entry);
  }

  #isJust(entry) {
    const { reason, t } = entry;
    const { profile } = this.history;
    switch (reason) {
      case 'malformed':
      case 'other_store': return this.#chain.connect.keep === 'bad';
      case 'too_old': return profile.retentionMs !== undefined
        || mayHideIts(this.history, this.user, entry.t);
      case 'damaged': return mayBeDamaged(this.history, t);
      case 'slow_consumer': return profile.policy !== 'disconnect' && this.#wasSlow(entry);
      default: return false;
    }
  }

  close(entry) {
    this.#isWrong('stayed', entry, this.#letIn.stays(entry));
    if (entry.by === 'client' || entry.transport === 'poll') return;
    if (entry.why === EXPIRED && entry.ms >= this.#expMs) {
      this.expired += 1;
      return;
    }
    if (this.#letIn.mayEnd(entry)) {
      this.turnedOut += 1;
      return;
    }
    // What says so needs that cause.
    if (!LetIn.saysSo(entry) && this.#mayClose(entry)) return;
    this.#violation('dropped', entry, `a connection dropped without cause: ${entry.why}`);
  }

  #mayClose(entry) {
    if (this.#wasSlow(entry) || duringFault(this.history, entry, 'closes')) return true;
    // Whenever it is seen: what was there before such a fault did not outlive it.
    const ended = ({ closes, begun }) => closes && this.#began < begun && begun < entry.t;
    return this.history.faults.some(ended)
      || isEnded(this.history, this.user, { begun: this.#began, ended: entry.t });
  }
}

/** Reads what one user saw; `about` is subject -> events. Gives `{chains, found, duplicates, gaps,
 *  received, connections, expired, turnedAway, turnedOut}`. */
export function readUser(history, user, about) {
  const reader = new Reader(history, user, about);
  for (const entry of history.user(user)) reader[entry.type](entry);
  return reader;
}
