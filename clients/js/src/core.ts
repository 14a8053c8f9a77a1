// When to connect, with which token and cursor; and which of what arrives is shown. It decides and
// does nothing: no sockets, no timers; clock and chance are given to it. `ways.ts` adds the choice
// of transports, and what a connection with a way back can do besides.
//
// Inputs are the methods, each called with what has happened. Its actions go to the `Shell`. The
// protocol is in http.md, 10 to 14.
//
// Invariants:
// - At most one connection at a time: `open` is called only after `drop`, or after a loss.
// - An event is shown once: an id within ten minutes, and within the last `RECENT_MAX` of them or
//   those of the last `Ms.Recent`, `RECENT_MOST` at most.
// - The cursor never covers an event that wasn't shown.
// - What the server says of when to come back is kept to; nothing but `close` and a refusal that
//   no waiting changes ends the attempts.

import { renewAfter } from './token.js';
import { HalleyError, type Item, type Loss, type Message, type State } from './types.js';

export interface Shell {
  dial(token: string | undefined, cursor: string | undefined): void;
  drop(): void;
  /** The user's callback is to give a token: `token` or `tokenFailed` is called then. */
  ask(): void;
  /** The live session goes on with this token, where it can be told. */
  renew?(token: string): unknown;
  show(item: Item): void;
  /** The connection is there: it has what its opening asked for. */
  live?(): void;
  /** Something came: an event or gap before it is shown, an answer, a heartbeat. */
  take?(message: Message): void;
  report(state: State, why?: HalleyError): void;
  /** `tick` is to be called then, in milliseconds of the clock; there is one such time. */
  timer(at: number): void;
}

export interface Clock {
  /** It only goes on. */
  now(): number;
  /** Milliseconds since 1970, as far as the machine knows. */
  wall(): number;
  /** From 0 to below 1. */
  random(): number;
}

export interface Rules {
  ways: number;
  cursor?: string | undefined;
  /** The one that there is, and no other. */
  token?: string | undefined;
  /** Tokens are asked for. */
  asks: boolean;
  /** How long a stream may be silent; the server says something more often. */
  silenceMs: number;
}

export const enum Ms {
  /** A stream may wait for 5 s to be admitted (`limits.admission_wait_ms_max`). */
  Open = 10_000,
  Ask = 30_000,
  Probe = 5_000,
  /** The first wait after a refusal; it doubles up to the most. */
  Wait = 1_000,
  WaitMax = 30_000,
  /** After a connection that was live, where it didn't say: the server's `stream.retry`. */
  Retry = 2_000,
  /** A connection that lived for so long was none that flaps. */
  Steady = 5_000,
  Welcome = 1_000,
  /** Until the first transport is tried again where only a later one worked. */
  Best = 600_000,
  /** The same, where it had worked before. */
  Again = 60_000,
  Awake = 500,
  /** The same id farther apart is another event: beyond the server's `history.retention`. */
  Double = 600_000,
  /** What comes twice comes within it, from two connections or from before and after a return. */
  Recent = 300_000,
}
const RECENT_MAX = 2_048;
const RECENT_MOST = 65_536;

/** Numbers are smaller where they are used; from `Opening` on there is a connection. */
export const enum Phase { Asking, Waiting, Closed, Opening, Live }

export type MakeCore = new (rules: Rules, clock: Clock, shell: Shell) => Core;

export abstract class Core {
  cursor: string | undefined;
  state: State = 'connecting';
  /** Which of the shell's is used. */
  transport = 0;
  protected phase: Phase = Phase.Waiting;
  /** When something is to be done about the phase, in milliseconds of the clock. */
  protected due = Infinity;
  /** Of the connection that is live, or was. */
  protected liveAt!: number;
  protected heardAt!: number;
  #failures = 0;
  #paced: boolean | undefined;
  #retry: number | undefined;
  #token: string | undefined;
  /** The token that the connection was opened with. */
  #shown: string | undefined;
  /** It was asked for, and hasn't opened anything yet. */
  #isNew: boolean | undefined;
  #asked: boolean | undefined;
  #renewAt = Infinity;
  /** When each of the last ids was published, and when it was shown. */
  #recent = new Map<string, [number, number]>();

  constructor(readonly rules: Rules, readonly clock: Clock, readonly shell: Shell) {
    this.cursor = rules.cursor;
    this.#token = rules.token;
  }

  start(): void {
    this.#connect();
    this.arm();
  }

  /** A token; none means that nobody is signed in any more. */
  token(text: string | null | undefined): void {
    if (this.phase === Phase.Closed) return;
    this.#asked = false;
    if (!text) return this.close(new HalleyError({ code: 'signed_out' }));
    this.#token = text;
    this.#isNew = true;
    const now = this.clock.now();
    this.#renewAt = now + renewAfter(text, this.clock.wall()) * (0.75 + 0.15 * this.clock.random());
    if (this.phase === Phase.Asking) this.open();
    else if (this.phase === Phase.Live) this.shell.renew?.(text);
    this.arm();
  }

  tokenFailed(message: string): void {
    if (this.phase === Phase.Closed) return;
    this.#asked = false;
    if (this.phase === Phase.Asking) this.#fail({ code: 'token_callback', message });
    else {
      this.#renewAt = this.clock.now() + this.#backoff(4);
      this.#report(this.state, new HalleyError({ code: 'token_callback', message }));
    }
    this.arm();
  }

  heard(): void {
    if (this.phase < Phase.Opening) return;
    const now = this.clock.now();
    const isFirst = this.phase === Phase.Opening;
    if (isFirst) {
      this.phase = Phase.Live;
      this.liveAt = now;
      this.#isNew = false;
      this.#report('open');
    }
    this.heardAt = now;
    this.due = now + this.rules.silenceMs;
    this.arm();
    if (isFirst) this.shell.live?.();
  }

  /** The connection says itself when it has been silent for too long, or can't be opened. */
  hold(): void {
    if (this.phase >= Phase.Opening) this.due = Infinity;
    this.arm();
  }

  message(message: Message): void {
    if (this.phase < Phase.Opening) return;
    this.heard();
    const { cursor, ...event } = message;
    const { id, gap, presence } = message;
    // A tab that began after it would show it out of order, and its cursor may be an older one.
    if (id && this.#isDouble(message)) return;
    this.shell.take?.(message);
    if (gap) this.shell.show({ gap });
    else if (presence) this.shell.show({ presence });
    else if (id) this.shell.show(event as Item);
    if (cursor) this.cursor = cursor;
    if (message.end) this.lost({ code: message.end.reason });
  }

  /** What the server asks to be waited after this connection. */
  retry(ms: number): void {
    this.#retry = ms;
  }

  lost(loss: Loss): void {
    if (this.phase < Phase.Opening) return;
    this.shell.drop();
    this.#fail(loss);
    this.arm();
  }

  /** The time that was asked for has come. */
  tick(): void {
    const now = this.clock.now();
    if (now >= this.#renewAt) {
      this.#renewAt = Infinity;
      // Nobody needs a token while there is no session.
      if (this.phase >= Phase.Opening) this.#ask();
      else this.#token = undefined;
    }
    if (now >= this.due) {
      this.due = Infinity;
      if (this.phase === Phase.Waiting) this.#connect();
      else if (this.phase === Phase.Asking) this.tokenFailed('timeout');
      else if (this.phase === Phase.Opening) this.lost({ code: 'open_timeout', broken: true });
      else this.silent();
    }
    this.arm();
  }

  /** The network is back, or the page is: what was measured in silence may be over. */
  wake(_newNetwork?: boolean): void {
    const now = this.clock.now();
    if (this.phase === Phase.Waiting && !this.#paced) {
      this.due = Math.min(this.due, now + Ms.Awake * this.clock.random());
    } else if (this.phase === Phase.Live && now - this.heardAt > this.rules.silenceMs / 2) {
      this.lost({ code: 'asleep', atOnce: true });
    }
    this.arm();
  }

  close(why?: HalleyError): void {
    if (this.phase === Phase.Closed) return;
    this.shell.drop();
    this.phase = Phase.Closed;
    this.due = this.#renewAt = Infinity;
    this.#report('closed', why);
    this.arm();
  }

  #connect(): void {
    if (!this.rules.asks || this.#token) return this.open();
    this.phase = Phase.Asking;
    this.due = this.clock.now() + Ms.Ask;
    this.#ask();
  }

  #ask(): void {
    if (this.#asked) return;
    this.#asked = true;
    this.shell.ask();
  }

  protected open(): void {
    this.phase = Phase.Opening;
    this.#retry = undefined;
    this.#shown = this.#token;
    this.due = this.clock.now() + Math.min(Ms.Open, this.rules.silenceMs);
    this.shell.dial(this.#token, this.cursor);
  }

  /** Whether it came before; it has from now on. */
  #isDouble({ id, at }: Message): true | void {
    const recent = this.#recent;
    if (Math.abs(at! - recent.get(id!)?.[0]!) <= Ms.Double) return true;
    recent.delete(id!);
    const now = this.clock.now();
    recent.set(id!, [at!, now]);
    for (const [oldest, [, shownAt]] of recent) {
      const { size } = recent;
      if (size <= RECENT_MAX || (size <= RECENT_MOST && now - shownAt < Ms.Recent)) break;
      recent.delete(oldest);
    }
  }

  /** Nothing came for longer than the server ever is silent. */
  protected abstract silent(): void;

  /** What a loss means for the transport of the next connection. */
  protected abstract choose(loss: Loss, wasLive: boolean): void;

  #fail(loss: Loss): void {
    const { code, status, retryAfterMs } = loss;
    const now = this.clock.now();
    const wasLive = this.phase === Phase.Live;
    const wasSteady = wasLive && now - this.liveAt >= Ms.Steady;
    const isToken = status === 401 || code === 'token_expired';
    const why = new HalleyError(loss);
    // What a proxy says may pass; what Halley itself refuses stays refused, whoever waits.
    // An address that is too long stays so.
    const isRefused = status === 414 || (/^40[034]/.test(status as any) && code !== 'http');
    const isFinal = isToken ? !this.rules.asks : isRefused;
    if (isFinal) return this.close(why);
    // A token that was good before has had its time; one that is refused as it comes has not.
    const atOnce = isToken ? wasLive || !this.#isNew : loss.atOnce;
    if (isToken && this.#token === this.#shown) this.#token = undefined;
    this.#isNew = false;
    if (wasSteady) this.#failures = 0;
    this.#paced = retryAfterMs !== undefined;
    let wait = retryAfterMs ?? 0;
    if (!this.#paced && !atOnce) {
      if (!wasSteady) this.#failures += 1;
      wait = wasSteady ? this.#retry ?? Ms.Retry * this.#spread()
        : Math.max(this.#retry ?? 0, this.#backoff(this.#failures));
    }
    if (code === 'too_many_sessions') wait = Math.max(wait, Ms.WaitMax * this.#spread());
    this.choose(loss, wasLive);
    this.phase = Phase.Waiting;
    this.due = now + wait;
    if (!loss.quiet) this.#report(this.state === 'connecting' ? this.state : 'reconnecting', why);
  }

  #spread(): number {
    return 0.5 + this.clock.random();
  }

  #backoff(failures: number): number {
    return Math.min(Ms.Wait * 2 ** (failures - 1), Ms.WaitMax) * this.#spread();
  }

  #report(state: State, why?: HalleyError): void {
    if (state === this.state && !why) return;
    this.state = state;
    this.shell.report(state, why);
  }

  protected arm(): void {
    this.shell.timer(Math.min(this.due, this.#renewAt));
  }
}
