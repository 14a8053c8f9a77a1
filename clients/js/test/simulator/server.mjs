// A model of Halley: a log, sessions, polls and what a user does, as slow as the story wants. It
// keeps to http.md as badly as that allows: a subject counts from its answer and not before, one
// that is ended until its answer, a welcome is late, a poll gives up on what it still reads.

const HEARTBEAT_MS = 4_000;
const HELD_MS_MIN = 1_000;
/** Of so many polls whose reading takes too long, one is answered whole. */
const LATE_MAX = 10;
export const USER = 'me';

const seqOf = (cursor) => +cursor.slice(1);

export class Server {
  isUp = true;
  log = [];
  /** By subject, from which event on. */
  follows = new Map([[USER, 0]]);
  sessions = new Set();
  /** All operations of WebSockets, but renewed tokens. */
  operations = [];
  #polls = new Set();
  #late = 0;
  #from = 0;

  /**
   * `slowMs` is the longest that the brain takes, `replayMs` that it reads for a replay, `batch`
   * how many events one REPLAY has, `most` how many subjects a session. `saysMore: false`: as
   * servers were before 11.5. `lies` are what a test plants.
   */
  constructor(clock, chance, options) {
    Object.assign(this, {
      clock, chance, slowMs: 0, replayMs: 0, batch: 5, most: 100, saysMore: true, lies: {},
    }, options);
  }

  get cursor() {
    return `c${this.log.length}`;
  }

  /** The same id gives the same event. */
  publish(subject, id) {
    const known = id && this.log.find((one) => one.key === id);
    if (known) return known;
    const event = {
      id: `e${this.log.length}`, subject, at: 1e12 + this.clock.now, data: this.log.length,
    };
    this.log.push({ event, key: id, at: this.clock.now });
    if (this.lies.loses && event.data % this.lies.loses === 0) return this.log.at(-1);
    for (const session of this.sessions) if (session.isLive) this.#bring(session, event);
    for (const poll of this.#polls) if (poll.isLive && this.#concerns(poll, event)) poll.bring();
    return this.log.at(-1);
  }

  #concerns({ subjects }, { subject, data }) {
    return data >= this.follows.get(subject) || subjects.has(subject);
  }

  #follow(subject) {
    if (!this.follows.has(subject)) this.follows.set(subject, this.log.length);
  }

  #bring(session, event) {
    session.position = event.data + 1;
    if (!this.#concerns(session, event)) return;
    session.to.send({ cursor: `c${event.data + 1}`, ...event });
  }

  /** A brain that was killed brings the newest events again to the sessions that are there. */
  repeat(count) {
    for (const session of this.sessions) {
      if (!session.isLive) continue;
      for (const { event } of this.log.slice(Math.max(session.began, this.log.length - count))) {
        this.#bring(session, event);
      }
    }
  }

  forget(before) {
    this.#from = Math.max(before, this.#from);
  }

  /** All connections are gone, and nobody answers. */
  down() {
    this.isUp = false;
    this.sessions.clear();
    this.#polls.clear();
  }

  up() {
    this.isUp = true;
  }

  #later(wire, ms, act) {
    this.clock.after(ms * this.chance.next(), () => !wire.isCut && this.isUp && act());
  }

  #refusal(subjects) {
    const refused = subjects.find((subject) => subject.startsWith('no'));
    if (refused) return [403, { code: 'right_missing', message: refused }];
    return subjects.length > this.most && [400, { code: 'too_many_subscriptions', message: '' }];
  }

  open(wire, query, to) {
    const subjects = query.getAll('subject');
    const cursor = query.get('cursor');
    this.#later(wire, this.slowMs, () => {
      const refusal = this.#refusal(subjects);
      if (refusal) return to.refuse(...refusal);
      const session = wire.session = {
        wire, to, subjects: new Set(subjects), token: query.get('token'),
        position: this.log.length, told: '', began: cursor ? seqOf(cursor) : this.log.length,
        isLive: !cursor, queue: [],
      };
      this.sessions.add(session);
      wire.onServerCut = () => this.sessions.delete(session);
      to.accept(cursor ? '' : this.cursor);
      if (cursor) this.#replay(session, seqOf(cursor));
      else if (to.isSocket) to.send({ cursor: this.cursor });
      this.#beat(session);
    });
  }

  /** What was missed, a piece at a time, then what is live. */
  #replay(session, from) {
    this.#later(session.wire, this.replayMs, () => {
      let at = this.#gap(from, (gap) => session.to.send({ cursor: `c${this.#from}`, gap }));
      for (let sent = 0; at < this.log.length && sent < this.batch; at += 1) {
        const { event } = this.log[at];
        if (!this.#concerns(session, event)) continue;
        this.#bring(session, event);
        sent += 1;
      }
      if (at < this.log.length) return this.#replay(session, at);
      session.isLive = true;
      session.position = this.log.length;
    });
  }

  /** Where the log begins later than that, tells so; gives where to begin. */
  #gap(from, tell) {
    if (from >= this.#from) return from;
    const [first, last] = [this.log[from], this.log[this.#from - 1]];
    tell({ from: first.event.at, to: last.event.at, reason: 'too_old' });
    return this.#from;
  }

  #beat(session) {
    this.clock.after(HEARTBEAT_MS, () => {
      if (!this.sessions.has(session)) return;
      if (session.isLive) {
        const cursor = `c${session.position}`;
        if (cursor !== session.told || !session.to.isSocket) session.to.send({ cursor });
        session.told = cursor;
      }
      this.#beat(session);
    });
  }

  /** What a WebSocket's client says: one operation at a time. */
  told(session, operation) {
    if (!session || !this.sessions.has(session)) return;
    if (operation.op === 'token') {
      return session.to.send({ ref: operation.ref, ok: { expires: null } });
    }
    this.operations.push(operation);
    session.queue.push(operation);
    if (session.queue.length === 1) this.#next(session);
  }

  #next(session) {
    this.#later(session.wire, this.slowMs, () => {
      const { ref, op, presence, subject = `presence ${presence}`, id } = session.queue[0];
      let error;
      if (op === 'subscribe') {
        [, error] = this.#refusal([subject]) || this.#refusal([...session.subjects, subject]) || [];
        if (!error && !this.lies.forgets) session.subjects.add(subject);
        session.began = this.log.length;
      } else if (op === 'unsubscribe') session.subjects.delete(subject);
      else if (op === 'publish') this.publish(subject, id);
      else if (op === 'follow') this.#follow(subject);
      session.to.send(error ? { ref, error } : { ref, ok: { added: 1 } });
      session.queue.shift();
      if (session.queue.length) this.#next(session);
    });
  }

  asked(method, path, query, body, answer) {
    this.clock.after(this.slowMs * this.chance.next(), () => {
      if (!this.isUp) return;
      if (path === '/v1/me/events') {
        return answer(200, { id: this.publish(body.subject, body.id).key });
      }
      // 28.1, by the client as it is; in the path by clients from before.
      const [, inPath] = /^\/v1\/me\/follows\/(.*)$/.exec(path) ?? [];
      const subject = inPath ? decodeURIComponent(inPath)
        : path === '/v1/me/follows' && query.get('subject');
      if (subject && method === 'PUT') this.#follow(subject);
      answer(subject ? 200 : 404, subject ? { added: 1 } : { error: { code: 'not_found' } });
    });
  }

  poll(wire, query, answer) {
    const subjects = query.getAll('subject');
    const cursor = query.get('cursor');
    const waitMs = 1_000 * Number(query.get('timeout') ?? 25);
    const read = this.replayMs * this.chance.next();
    this.#later(wire, this.slowMs, () => {
      const refusal = this.#refusal(subjects);
      if (refusal) return answer(refusal[0], { error: refusal[1] });
      const poll = { subjects: new Set(subjects), isLive: false };
      const from = cursor ? seqOf(cursor) : this.log.length;
      this.#polls.add(poll);
      const end = (...all) => {
        this.clock.stop(poll.timer);
        if (this.#polls.delete(poll)) answer(200, ...all);
      };
      wire.onServerCut = () => this.#polls.delete(poll);
      if (cursor && read > Math.max(waitMs, HELD_MS_MIN) && (this.#late += 1) % LATE_MAX) {
        const late = { events: [], cursor, ...(this.saysMore && { more: true }) };
        return this.clock.after(Math.max(waitMs, HELD_MS_MIN), () => end(late));
      }
      poll.bring = () => this.#answerPoll(poll, from, end);
      this.clock.after(cursor ? Math.min(read, Math.max(waitMs, HELD_MS_MIN)) : 0, () => {
        poll.isLive = true;
        poll.timer = this.clock.after(waitMs, () => end({ events: [], cursor: this.cursor }));
        if (!waitMs || this.log.slice(from).some(({ event }) => this.#concerns(poll, event))) {
          poll.bring();
        }
      });
    });
  }

  #answerPoll(poll, from, end) {
    let gap;
    let at = this.#gap(from, (one) => { gap = one; });
    const events = [];
    for (; at < this.log.length && events.length < this.batch; at += 1) {
      const { event } = this.log[at];
      if (this.#concerns(poll, event)) events.push(event);
    }
    const more = at < this.log.length;
    end({ gap, events, cursor: `c${at}`, ...(this.saysMore && more && { more }) });
  }
}
