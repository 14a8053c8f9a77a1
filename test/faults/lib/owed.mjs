// Which hooks must come about events that reached no session, and about users who come and go.
// Pure, so that tests can give it false hooks. It knows the clients' connections, the times when
// faults disturbed the server, and the endpoint's hooks; and decides for each user and event
// whether `undelivered` must come, must not come, or may come (docs/internals/hooks.md, "A round";
// docs/guides/hooks.md, "What undelivered means").
//
// An attempt to connect is `{begin, welcome, end, cursorAt}`, with times of the wall clock, or null
// for a step that did not happen; `cursorAt` is when the client got the cursor that it brought. A
// session is there for sure from its welcome until its client closes it, or until a moment before
// the server does. It may be there from the attempt's begin until the server has noticed the end.
// An event comes at some moment between the begin of its first publish and the acknowledgement.
//
// While the server is disturbed, and until it has settled, ends are noticed late, a user who comes
// back with a cursor is in time, and a sync may count a new session as one from before. The brain
// may not know the moves of the moment before a kill: there it may name a user too many.

const WINDOW_MS = 2_000;
/** Between what a client sees and what the server does, on a quiet machine. */
const SLACK_MS = 300;
/** By then a server that is well has noticed that a client went. */
const NOTICED_MS = 2_000;
/** After the last link said its sessions, for three seconds nobody is missing. */
const SETTLED_MS = 8_000;
/** What happened so long before a kill may not be on disk. */
const UNWRITTEN_MS = 1_000;
const WRONGS_MAX = 20;

const never = (time) => time ?? Infinity;

export class Owed {
  #attempts = new Map();
  #events = new Map();
  #disturbances = [];
  #told = new Map();
  #changes = new Map();
  #hooks = new Set();
  #gaps = [];
  #lateMs = 0;

  /** @param mayRepeat whether an event may come under another hook's id, as after a power cut */
  constructor({ mayRepeat = false } = {}) {
    this.mayRepeat = mayRepeat;
  }

  /** The checker was held up for so long. */
  late(ms) { this.#lateMs = Math.max(this.#lateMs, ms); }

  get #slackMs() { return SLACK_MS + this.#lateMs; }

  // ---- what clients saw ----

  /** A client begins to connect; whoever calls fills in `welcome` and `end`, and who closed it. */
  attempt(user, begin, cursorAt = null) {
    const attempt = { begin, welcome: null, end: null, cursorAt, isClosed: false };
    this.#of(user).push(attempt);
    return attempt;
  }

  #of(user) {
    if (!this.#attempts.has(user)) this.#attempts.set(user, []);
    return this.#attempts.get(user);
  }

  /**
   * An event for these users; `acked` and `sessions` are filled in when that is known. `isAlone`:
   * it is for this user and nobody else, so an answer that counts a session says that it was found.
   */
  event(id, users, begin, isAlone = false) {
    const event = { id, users, begin, acked: null, sessions: null, isAlone };
    this.#events.set(id, event);
    return event;
  }

  /** The server is disturbed; `kills` if its brain dies. Whoever calls fills in `end`. */
  disturb(begin, kills = false) {
    const disturbance = { begin, end: null, kills };
    this.#disturbances.push(disturbance);
    return disturbance;
  }

  // ---- what the endpoint was told ----

  hook(hook) {
    if (this.#hooks.has(hook.id)) return;
    this.#hooks.add(hook.id);
    if (hook.type === 'gap') {
      this.#gaps.push(hook);
    } else if (hook.type === 'undelivered') {
      for (const user of hook.users) {
        const key = `${user} ${hook.event.id}`;
        this.#told.set(key, (this.#told.get(key) ?? 0) + 1);
      }
    } else {
      const all = this.#changes.get(hook.user) ?? [];
      this.#changes.set(hook.user, [...all, hook]);
    }
  }

  // ---- the verdict ----

  /** Times in which the server was disturbed or not settled yet, as one where they touch. */
  #spans() {
    const spans = this.#disturbances
      .map(({ begin, end }) => ({ from: begin - NOTICED_MS, to: never(end) + SETTLED_MS }))
      .sort((one, other) => one.from - other.from);
    return spans.reduce((all, span) => {
      const last = all.at(-1);
      if (last && span.from <= last.to) last.to = Math.max(last.to, span.to);
      else all.push({ ...span });
      return all;
    }, []);
  }

  /** Whether this time touches the moment before a kill, of which nothing may be written. */
  #isUnwritten(from, to) {
    return this.#disturbances.some(({ begin, end, kills }) => kills
      && from <= never(end) && to >= begin - UNWRITTEN_MS - this.#lateMs);
  }

  /** `must`, `mustNot`, or undefined where nobody can tell. */
  decide(user, { begin, acked, sessions, isAlone }, spans = this.#spans()) {
    if (acked === null) return undefined;
    const attempts = this.#of(user);
    const span = spans.find(({ from, to }) => from <= acked + WINDOW_MS && to >= begin - WINDOW_MS);
    const had = attempts.find((one) => this.#had(one, begin, acked));
    if (had) {
      const isFound = isAlone && sessions > 0;
      const isUnknown = this.#isUnwritten(begin, acked)
        || this.#isUnwritten(had.begin, had.welcome);
      return isUnknown && !isFound ? undefined : 'mustNot';
    }
    const isAway = sessions === 0
      || (!span && attempts.every((one) => one.begin > acked || this.#isGone(one, begin)));
    return isAway && !this.#mayBeInTime(attempts, begin, acked, span) ? 'must' : undefined;
  }

  /** A session had it live, or was sent it in time. */
  #had({ begin, welcome, end, cursorAt, isClosed }, from, to) {
    if (welcome === null) return false;
    const sureEnd = isClosed || end === null ? never(end) : end - this.#slackMs;
    if (welcome <= from && sureEnd >= to) return true;
    return cursorAt !== null && cursorAt < from && begin >= from - WINDOW_MS
      && welcome <= from + WINDOW_MS - SLACK_MS && sureEnd >= Math.max(to, welcome);
  }

  #isGone({ end }, from) { return end !== null && end <= from - NOTICED_MS - this.#lateMs; }

  #mayBeInTime(attempts, from, to, span) {
    const until = Math.max(to + WINDOW_MS + this.#slackMs, span ? span.to : -Infinity);
    const isAround = (one) => one.begin <= until && never(one.end) >= from - NOTICED_MS;
    if (attempts.some((one) => one.cursorAt !== null && isAround(one))) return true;
    // Where links were cut, a session that a sync says stands for one that was there before.
    return span !== undefined
      && attempts.some((one) => one.begin <= to && never(one.end) >= span.from - NOTICED_MS);
  }

  #isInGap({ begin, acked }) {
    return this.#gaps.some(({ from, to }) => from <= acked && to >= begin);
  }

  /** What isn't told yet, and no gap says so. */
  owed() {
    const spans = this.#spans();
    return [...this.#events.values()].flatMap((event) => event.users
      .filter((user) => !this.#told.has(`${user} ${event.id}`)
        && this.decide(user, event, spans) === 'must' && !this.#isInGap(event))
      .map((user) => `${event.id} to ${user} is never told as undelivered: published at `
        + `${event.begin} to ${event.acked}`));
  }

  /** What was told and must not be. */
  wrong() {
    const spans = this.#spans();
    const wrong = [];
    for (const [key, count] of this.#told) {
      const [user, id] = key.split(' ');
      const event = this.#events.get(id);
      if (!event?.users.includes(user)) wrong.push(`${key} is no event of this user`);
      else if (this.decide(user, event, spans) === 'mustNot') {
        wrong.push(`${id} is told as undelivered to ${user}, who had it: published at `
          + `${event.begin} to ${event.acked}`);
      }
      if (count > 1 && !this.mayRepeat) wrong.push(`${id} is told as undelivered ${count} times`);
    }
    for (const [user, hooks] of this.#changes) wrong.push(...this.#ofUser(user, hooks));
    return wrong.slice(0, WRONGS_MAX);
  }

  /** Each `opened` has an attempt since the last `closed`; both come in turn. */
  #ofUser(user, hooks) {
    const wrong = [];
    let [last, since] = ['closed', -Infinity];
    for (const { type, at } of hooks) {
      if (type === last) wrong.push(`${user} is told as ${type} twice, at ${at}`);
      const isThere = this.#of(user).some((one) => one.begin <= at + this.#slackMs
        && never(one.end) >= since - NOTICED_MS - this.#slackMs);
      if (type === 'opened' && !isThere) {
        wrong.push(`${user} is told as opened at ${at}, and did not come since ${since}`);
      }
      [last, since] = [type, at];
    }
    return wrong;
  }

  /** Users who were there and were never told as opened, or whose last hook isn't what is so. */
  mistaken() {
    return [...this.#attempts].filter(([user, attempts]) => {
      const hooks = this.#changes.get(user) ?? [];
      const wasThere = attempts.some(({ welcome }) => welcome !== null);
      const isThere = attempts.some(({ welcome, end }) => welcome !== null && end === null);
      return (hooks.at(-1)?.type === 'opened') !== isThere || (wasThere && hooks.length === 0);
    }).map(([user]) => user);
  }

  /** For the table: how much of it could be decided. */
  get counts() {
    const spans = this.#spans();
    const all = [...this.#events.values()].flatMap((event) => event.users
      .map((user) => this.decide(user, event, spans)));
    const count = (what) => all.filter((one) => one === what).length;
    return { 'owed: must be told': count('must'), 'owed: must not': count('mustNot'),
      'owed: nobody can tell': count(undefined) };
  }
}
