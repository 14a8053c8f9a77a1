// Users whom the operator's server lets in (`auth.connect_url`, protocol/http.md 14.10): the
// verdict on one user's sessions, by that server's answers.
//
//   let in       a session opens only if that server said so, at most `connectTtlMs` before. Who
//                waits while a link syncs may come in unasked (docs/internals/hooks.md)
//   stayed       for a session that lives on in a new brain there is another request; if it is
//                refused, it ends, and a WebSocket has the reason
//   turned away  403 and 503 have a cause: a refusal, or an answer that didn't come
//   dropped      so has such an end
//
// Pure; let_in.test.mjs feeds it lies.

export const REFUSED = 'connect_refused';
const UNAVAILABLE = 'connect_unavailable';
/** How a stream ends that the server ends, and how a WebSocket says why. */
const LAST_CHUNK = 'the last chunk';
const CLOSED = `close 1001 ${REFUSED}`;

/** For an answer on its way, and for what the machine keeps waiting. */
const SLACK_MS = 3_000;
/** What waits for a link may come in with its sync, so long after the fault. */
const SYNC_MS = 3_000;
/** A refusal closes a session by then, and by then all are asked about after a start. */
const CLOSED_MS = 2_500;
const ASKED_MS = 4_000;
/** For an answer, and for a turn before it. */
const UNANSWERED_MS = 10_000;

const isSync = ({ kills, links, closes }) => kills || links || closes;

export class LetIn {
  #connect;
  #entered;
  #isFound;

  constructor(history, user) {
    this.history = history;
    this.user = user;
    this.isAsked = history.profile.connectTtlMs !== undefined && !history.visitors.has(user);
  }

  get #said() {
    return this.history.admissions.get(this.user) ?? [];
  }

  connect(entry) {
    this.#connect = entry;
    this.#entered = undefined;
    this.#isFound = false;
  }

  /** Was there a fault of this kind, or still is, from `fromMs` to `untilMs`? */
  #fault(is, fromMs, untilMs) {
    return this.history.faults.some((fault) => is(fault) && fault.begunMs <= untilMs
      && (fault.endedMs ?? Infinity) >= fromMs);
  }

  /** Did such an answer count for what began with the connection and was seen at `t`? */
  #counted(says, t) {
    const { connectTtlMs } = this.history.profile;
    const judged = this.#said.filter((one) => one.says !== 'none' && one.t < t);
    const last = judged.findLast((one) => one.t < this.#connect.t);
    return judged.some((one) => one.says === says && one.t > this.#connect.t)
      || (last?.says === says && last.ms >= this.#connect.ms - connectTtlMs - SLACK_MS);
  }

  /** It has a session, as this entry shows; says what is wrong with that. */
  enters(entry) {
    if (!this.isAsked || this.#entered) return undefined;
    this.#entered = entry;
    const isGood = this.#counted('yes', entry.t)
      || this.#fault(isSync, this.#connect.ms - SYNC_MS, entry.ms);
    return isGood ? undefined : 'a session of a user that nobody let in';
  }

  /** It still has a session; says why it must not, once. */
  stays(entry) {
    if (!this.isAsked || !this.#entered || this.#isFound) return undefined;
    const wrong = this.#outstays(entry) ?? this.#isForgotten(entry);
    this.#isFound = wrong !== undefined;
    return wrong;
  }

  #outstays({ t, ms }) {
    const last = this.#said.findLast((one) => one.t < t);
    if (last?.says !== 'no' || last.t < this.#entered.t || ms <= last.ms + CLOSED_MS) {
      return undefined;
    }
    if (this.#fault(isSync, last.ms - SLACK_MS, last.ms + CLOSED_MS)) return undefined;
    return `a session ${ms - last.ms} ms behind the answer that refused it`;
  }

  #isForgotten({ ms }) {
    const start = this.history.faults.findLast(({ kills, spares, endedMs }) =>
      kills && !spares && endedMs !== null && endedMs + ASKED_MS < ms);
    if (!start || start.begun < this.#entered.t) return undefined;
    const { begun, endedMs } = start;
    const until = endedMs + ASKED_MS;
    const other = (fault) => fault !== start && (isSync(fault) || fault.silences);
    if (this.#fault(other, endedMs - SYNC_MS, until)) return undefined;
    const isAsked = this.#said.some((one) => one.t > begun && one.ms <= until);
    return isAsked ? undefined : `nobody was asked about it in ${ASKED_MS} ms after a start`;
  }

  /** A connection was refused with this code; says what is wrong with that. */
  refused({ t, ms, code }) {
    if (code === REFUSED) {
      return this.isAsked && this.#counted('no', t) ? undefined : 'refused, and nobody said so';
    }
    if (code !== UNAVAILABLE) return undefined;
    const from = this.#connect.ms - UNANSWERED_MS;
    const isGood = this.isAsked
      && (this.history.unanswered.some((at) => at >= from && at <= ms)
        || this.#fault((fault) => isSync(fault) || fault.silences, from, ms));
    return isGood ? undefined : 'not let in, while every answer came';
  }

  /** Whether a connection's end says that a refusal was found out; only a WebSocket's can. */
  static saysSo = ({ why = '' }) => why.startsWith(CLOSED);

  /** May the connection have ended like this, as its session was refused behind a restart? */
  mayEnd(entry) {
    return (LetIn.saysSo(entry) || entry.why === LAST_CHUNK)
      && this.isAsked && this.#counted('no', entry.t)
      && this.#fault(isSync, this.#connect.ms - SYNC_MS, entry.ms);
  }
}
