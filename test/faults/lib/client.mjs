// One user's client: it opens a connection, notes what comes, and comes back when it is dropped.
//
// It keeps the last cursor and how many events and gaps that covers (its *position*), so that the
// verdict knows what it may count on. Faults act through `drop`, `dieMidFrame` and `stall`; how
// it comes back next is in the order they give: `{cursor: 'last' | 'old' | 'none' | 'bad'}`.

import { mint, nowS } from '../../lib/token.mjs';
import { sleep } from '../../lib/wait.mjs';
import { TRANSPORTS, openConnection } from './transports.mjs';

const CURSORS_MAX = 64;
/** How many of the newest events half of those who begin ask for. */
const LAST = 5;
const RETRY_MS = [20, 250];
/** How long tokens are good for; in whole seconds, as they say it. */
const TOKEN_S = [2, 10];
/** Cursors that are none, and one that has the shape of one, from no store. */
const BAD_CURSORS = ['x', 'AAAA', '%00', 'a'.repeat(300), 'AQAAAAEAAAAAAAAA'];

let connections = 0;

export class Client {
  #position = 0;
  #cursors = [];
  #connection = null;
  #conn = 0;
  #next = { cursor: 'last', awayMs: 0 };
  #stopped = false;
  #welcomed = false;
  #entered;

  /** @param isVisitor whether the name is the checker's alone: the server hears of no user */
  constructor(world, user, random, isVisitor = false) {
    this.world = world;
    this.user = user;
    this.isVisitor = isVisitor;
    this.random = random;
    this.transport = random.pick(TRANSPORTS);
    // Half of them change the transport with every connection: the cursor is the same for all.
    this.wanders = random.chance(0.5);
    this.stalled = false;
    /** Whether it shows tokens, in rounds that have them. */
    this.isKnown = !isVisitor || random.chance(0.5);
  }

  /** A new one, and when it expires; none where none is asked for. */
  #token(subjects) {
    const key = this.world.server.tokenKey;
    if (!key || !this.isKnown) return {};
    const exp = nowS() + this.random.int(...TOKEN_S);
    const sub = this.isVisitor ? undefined : this.user;
    return { token: mint(key, { sub, exp, halley: { subscribe: subjects } }), expMs: exp * 1_000 };
  }

  get isConnected() {
    return this.#connection !== null;
  }

  /** What is published from now on is owed, until the connection ends. */
  get isWelcomed() {
    return this.isConnected && this.#welcomed;
  }

  /** Runs until `stop`. */
  async run() {
    while (!this.#stopped) {
      const { awayMs } = this.#next;
      if (awayMs > 0) await this.#rest(awayMs);
      if (this.#stopped) break;
      await this.#session();
      if (this.#next.awayMs === 0) {
        await sleep(this.random.int(...RETRY_MS));
      }
    }
  }

  /** Away for `ms`, or until `settle`. */
  async #rest(ms) {
    await Promise.race([sleep(ms), new Promise((resolve) => { this.#entered = resolve; })]);
  }

  #choose() {
    const order = this.#next;
    this.#next = { cursor: 'last', awayMs: 0 };
    const last = this.#cursors.at(-1);
    if (order.cursor === 'bad') {
      this.#cursors = [];
      return { keep: 'bad', cursor: this.random.pick(BAD_CURSORS) };
    }
    if (last === undefined || order.cursor === 'none') {
      this.#cursors = [];
      return { keep: 'none' };
    }
    if (order.cursor === 'old') {
      this.#cursors.length = this.random.int(1, this.#cursors.length);
      return this.#cursors.at(-1);
    }
    return last;
  }

  async #session() {
    const { keep, cursor } = this.#choose();
    if (this.wanders) this.transport = this.random.pick(TRANSPORTS);
    connections += 1;
    this.#conn = connections;
    this.#position = typeof keep === 'number' ? keep : 0;
    const subjects = [...this.world.history.subscribed.get(this.user) ?? []];
    const byOperations = this.transport === 'ws' && cursor === undefined
      && this.random.chance(0.5);
    const asking = this.#asking(subjects, byOperations, cursor);
    const wishes = keep === 'none' && subjects.length > 0 && !byOperations;
    const last = wishes && this.random.chance(0.5) ? LAST : undefined;
    const { token, expMs } = this.#token(subjects);
    const byMessage = this.transport === 'ws' && this.random.chance(0.5);
    this.#note('connect', { keep, cursor, last, expMs, byOperations, byMessage });
    this.stalled = false;
    this.#welcomed = false;
    await new Promise((resolve) => {
      this.#connection = openConnection(this.transport, this.world.publicPort,
        this.#listener(resolve), { user: this.isVisitor ? undefined : this.user, subjects, cursor,
          last, token, byHeader: this.random.chance(0.5), byOperations, byMessage, asking });
    });
  }

  /** What a WebSocket subscribes to by operations, of what half for the newest events as well: all
   *  that it has, or one that it has already, while it is sent what it missed. */
  #asking(subjects, byOperations, cursor) {
    if (this.transport !== 'ws') return [];
    if (byOperations) {
      return subjects.map((subject) => ({ subject,
        last: this.random.chance(0.5) ? LAST : undefined }));
    }
    const isAgain = cursor !== undefined && subjects.length > 0 && this.random.chance(0.5);
    return isAgain ? [{ subject: this.random.pick(subjects), last: LAST }] : [];
  }

  #note(type, more = {}) {
    this.world.history.note(this.user, type,
      { conn: this.#conn, transport: this.transport, ...more });
  }

  #listener(resolve) {
    return {
      open: () => {
        this.#welcomed = true;
        this.#note('open');
      },
      asking: () => this.world.history.tick(),
      answer: (answer) => this.#answer(answer),
      event: (event, cursor) => {
        this.#position += 1;
        this.#note('event', this.world.publisher.check(event));
        this.#cursor(cursor);
      },
      gap: ({ from, to, reason }, cursor) => {
        this.world.beat();
        this.#position += 1;
        this.#note('gap', { from, to, reason });
        this.#cursor(cursor);
      },
      cursor: (cursor) => this.#cursor(cursor),
      garbled: (text) => this.#note('garbled', { text }),
      refused: (status, code) => {
        this.world.refused(status);
        if (status === 403 || code?.startsWith('connect_')) this.#note('refused', { code });
      },
      again: () => this.#nextPoll(),
      closed: (by, why) => {
        this.world.beat();
        this.#connection = null;
        this.#note('close', { by, why });
        resolve();
      },
    };
  }

  #answer({ subject, last, asked, events = [], gaps = [], kept }) {
    const { publisher } = this.world;
    const entries = [...events.map((event) => ({ type: 'event', ...publisher.check(event) })),
      ...gaps.map(({ from, to, reason }) => ({ type: 'gap', from, to, reason }))];
    this.#note('answer', { subject, last, asked, entries,
      kept: kept ? publisher.check(kept) : undefined });
  }

  /** A poll's answer is an end, and the next one a resume. */
  #nextPoll() {
    this.#note('close', { by: 'client', why: 'answered' });
    connections += 1;
    this.#conn = connections;
    this.#note('connect', { keep: this.#position });
  }

  #cursor(cursor) {
    if (cursor === undefined) return;
    this.#cursors.push({ cursor, keep: this.#position });
    if (this.#cursors.length > CURSORS_MAX) this.#cursors.shift();
  }

  /** The client goes away, for `awayMs`. */
  drop(order) {
    this.#next = { cursor: 'last', awayMs: 0, ...order };
    this.#connection?.finish('client', 'dropped');
  }

  /** The client dies when the next bytes come. */
  dieMidFrame(fraction, order) {
    this.#next = { cursor: 'last', awayMs: 0, ...order };
    this.#connection?.dieMidFrame(fraction);
  }

  /** The whole checker was held up: the client read nothing and answered no ping meanwhile. */
  wasLate(ms) {
    if (this.#connection) this.#note('late', { forMs: ms });
  }

  /** The client reads nothing for `ms`. */
  async stall(ms) {
    const connection = this.#connection;
    if (!connection) return;
    this.stalled = true;
    this.#note('stall', { forMs: ms });
    connection.pause();
    await sleep(ms);
    connection.resume();
    this.stalled = false;
  }

  /** No more being away: whoever is comes back with its cursor. */
  settle() {
    this.#next = { ...this.#next, awayMs: 0 };
    this.#entered?.();
  }

  stop() {
    this.#stopped = true;
    this.#entered?.();
    this.#connection?.finish('client', 'the round is over');
  }
}
