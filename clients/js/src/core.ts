// When to connect, by which transport, with which token and cursor; and which of what arrives is
// shown. It decides and does nothing: no sockets, no timers; clock and chance are given to it.
//
// Inputs are the methods, each called with what has happened. What is to be done goes to the
// `Shell`. The protocol is in http.md, 10 to 14.
//
// Invariants:
// - At most one connection at a time: `open` is called only after `drop`, or after a loss.
// - An event id is shown once within the last `RECENT_MAX` of them.
// - The cursor never covers an event that wasn't shown.
// - What the server says of when to come back is kept to; nothing but `close` and a refusal that
//   no waiting changes ends the attempts.

import { renewAfter } from './token.js';
import { HalleyError, type Item, type Loss, type Message, type State } from './types.js';

export interface Shell {
  open(transport: number, token: string | undefined, cursor: string | undefined): void;
  drop(): void;
  /** The user's callback is to give a token: `token` or `tokenFailed` is called then. */
  ask(): void;
  /** The live session goes on with this token, where its transport can say so. */
  renew(token: string): void;
  /** The server is to say something; gives false where it can't be asked. */
  probe(): boolean;
  show(item: Item): void;
  state(state: State, why?: HalleyError): void;
  /** `tick` is to be called then, in milliseconds of the clock; there is one such time. */
  timer(at: number): void;
}

export interface Clock {
  now(): number;
  /** From 0 to below 1. */
  random(): number;
}

export interface Rules {
  transports: number;
  cursor?: string | undefined;
  /** `none`: the server asks for none; `fixed`: there is one, and no other. */
  tokens: 'none' | 'fixed' | 'asked';
  /** How long a stream may be silent; the server says something more often. */
  silenceMs: number;
}

/** A stream may wait for 5 s to be admitted (`limits.admission_wait_ms_max`). */
const OPEN_MS = 10_000;
const ASK_MS = 30_000;
const PROBE_MS = 5_000;
/** The first wait after a refusal; it doubles up to the most. */
const WAIT_MS = 1_000;
const WAIT_MS_MAX = 30_000;
/** After a connection that was live, where it didn't say: the server's `stream.retry`. */
const RETRY_MS = 2_000;
/** A connection that lived for so long was none that flaps. */
const STEADY_MS = 5_000;
const WELCOME_MS = 1_000;
/** Until the first transport is tried again where only a later one worked. */
const BEST_MS = 600_000;
const AWAKE_MS = 500;
const RECENT_MAX = 2_048;

type Phase = 'asking' | 'opening' | 'live' | 'waiting' | 'closed';

export class Core {
  cursor: string | undefined;
  state: State = 'connecting';
  #phase: Phase = 'waiting';
  #due = Infinity;
  #transport = 0;
  /** Since when transports below `#transport` count as broken. */
  #worseSince = 0;
  #failures = 0;
  #paced = false;
  #retry: number | undefined;
  #liveAt = 0;
  #heardAt = 0;
  #stalls = 0;
  #probed = false;
  #token: string | undefined;
  /** The token that the connection was opened with. */
  #shown: string | undefined;
  /** It was asked for, and hasn't opened anything yet. */
  #isNew = false;
  #asked = false;
  #renewAt = Infinity;
  #recent = new Set<string>();

  constructor(readonly rules: Rules, readonly clock: Clock, readonly shell: Shell) {
    this.cursor = rules.cursor;
  }

  start(): void {
    this.#connect();
    this.#arm();
  }

  /** A token; none means that nobody is signed in any more. */
  token(text: string | null | undefined): void {
    if (this.#phase === 'closed') return;
    this.#asked = false;
    if (!text) return this.close(new HalleyError('signed_out', 'no token'));
    this.#token = text;
    this.#isNew = true;
    const now = this.clock.now();
    this.#renewAt = this.rules.tokens === 'asked'
      ? now + renewAfter(text, now) * (0.75 + 0.15 * this.clock.random()) : Infinity;
    if (this.#phase === 'asking') this.#open();
    else if (this.#phase === 'live') this.shell.renew(text);
    this.#arm();
  }

  tokenFailed(message: string): void {
    if (this.#phase === 'closed') return;
    this.#asked = false;
    if (this.#phase === 'asking') this.#fail({ code: 'token_callback', message });
    else this.#renewAt = this.clock.now() + this.#backoff(4);
    this.#arm();
  }

  heard(): void {
    if (this.#phase !== 'opening' && this.#phase !== 'live') return;
    const now = this.clock.now();
    if (this.#phase === 'opening') {
      this.#phase = 'live';
      this.#liveAt = now;
      this.#isNew = false;
      this.#say('open');
    }
    // What comes with the welcome may be all that a proxy lets through.
    if (now - this.#liveAt > WELCOME_MS) this.#stalls = 0;
    this.#probed = false;
    this.#heardAt = now;
    this.#due = now + this.rules.silenceMs;
    this.#arm();
  }

  message(message: Message): void {
    if (this.#phase !== 'opening' && this.#phase !== 'live') return;
    this.heard();
    if (message.gap) this.shell.show({ gap: message.gap });
    else if (message.id !== undefined) this.#event(message);
    if (message.cursor) this.cursor = message.cursor;
    if (message.end) this.lost({ code: message.end.reason });
  }

  /** What the server asks to be waited after this connection. */
  retry(ms: number): void {
    this.#retry = ms;
  }

  lost(loss: Loss): void {
    if (this.#phase !== 'opening' && this.#phase !== 'live') return;
    this.shell.drop();
    this.#fail(loss);
    this.#arm();
  }

  /** The time that was asked for has come. */
  tick(): void {
    const now = this.clock.now();
    if (now >= this.#renewAt) this.#renew();
    if (now >= this.#due) {
      this.#due = Infinity;
      if (this.#phase === 'waiting') this.#connect();
      else if (this.#phase === 'asking') this.tokenFailed('no answer');
      else if (this.#phase === 'opening') this.lost({ code: 'open_timeout', broken: true });
      else if (this.#phase === 'live') this.#silent();
    }
    this.#arm();
  }

  /** The network is back, or the page is: what was measured in silence may be over. */
  wake(newNetwork = false): void {
    const now = this.clock.now();
    if (newNetwork) this.#worseSince = -Infinity;
    if (this.#phase === 'waiting' && !this.#paced) {
      this.#due = Math.min(this.#due, now + AWAKE_MS * this.clock.random());
    } else if (this.#phase === 'live' && now - this.#heardAt > PROBE_MS) {
      if (this.#probed || this.shell.probe()) this.#due = Math.min(this.#due, now + PROBE_MS);
      else if (now - this.#heardAt > this.rules.silenceMs / 2) {
        this.lost({ code: 'asleep', atOnce: true });
      }
      this.#probed = true;
    }
    this.#arm();
  }

  /** The network is gone, or the page is put aside. */
  sleep(code = 'offline'): void {
    this.lost({ code });
  }

  close(why?: HalleyError): void {
    if (this.#phase === 'closed') return;
    if (this.#phase === 'opening' || this.#phase === 'live') this.shell.drop();
    this.#phase = 'closed';
    this.#due = this.#renewAt = Infinity;
    this.#say('closed', why);
    this.#arm();
  }

  #connect(): void {
    if (this.#transport > 0 && this.clock.now() - this.#worseSince > BEST_MS) this.#transport = 0;
    if (this.rules.tokens === 'none' || this.#token) return this.#open();
    this.#phase = 'asking';
    this.#due = this.clock.now() + ASK_MS;
    this.#ask();
  }

  /** Nobody needs a token while there is no session. */
  #renew(): void {
    this.#renewAt = Infinity;
    if (this.#phase === 'live' || this.#phase === 'opening') this.#ask();
    else this.#token = undefined;
  }

  #ask(): void {
    if (this.#asked) return;
    this.#asked = true;
    this.shell.ask();
  }

  #open(): void {
    this.#phase = 'opening';
    this.#retry = undefined;
    this.#shown = this.#token;
    this.#due = this.clock.now() + Math.min(OPEN_MS, this.rules.silenceMs);
    this.shell.open(this.#transport, this.#token, this.cursor);
  }

  #event(message: Message): void {
    const { cursor: _, ...event } = message;
    const id = event.id!;
    if (this.#recent.has(id)) return;
    this.#recent.add(id);
    if (this.#recent.size > RECENT_MAX) this.#recent.delete(this.#recent.values().next().value!);
    this.shell.show(event as Item);
  }

  /** Nothing came for longer than the server ever is silent. */
  #silent(): void {
    const now = this.clock.now();
    if (!this.#probed && this.shell.probe()) {
      this.#probed = true;
      this.#due = now + PROBE_MS;
      return;
    }
    // Once may be the network; what is cut off after its first bytes again is held by a proxy.
    this.#stalls += 1;
    this.lost({ code: 'silent', broken: this.#stalls > 1, atOnce: true });
  }

  #fail(loss: Loss): void {
    const { code, status, message, retryAfterMs } = loss;
    const now = this.clock.now();
    const wasLive = this.#phase === 'live';
    const wasSteady = wasLive && now - this.#liveAt >= STEADY_MS;
    const isToken = status === 401 || code === 'token_expired';
    const why = new HalleyError(code, message, status, retryAfterMs);
    if (isRefused(loss) || (isToken && this.rules.tokens !== 'asked')) return this.close(why);
    // A token that was good before has had its time; one that is refused as it comes has not.
    const atOnce = isToken ? wasLive || !this.#isNew : loss.atOnce;
    if (isToken && this.#token === this.#shown) this.#token = undefined;
    this.#isNew = false;
    if (wasSteady) this.#failures = 0;
    this.#paced = retryAfterMs !== undefined;
    let wait = retryAfterMs ?? 0;
    if (!this.#paced && !atOnce) {
      if (!wasSteady) this.#failures += 1;
      wait = wasSteady ? this.#retry ?? RETRY_MS * this.#spread()
        : Math.max(this.#retry ?? 0, this.#backoff(this.#failures));
    }
    if (code === 'too_many_sessions') wait = Math.max(wait, WAIT_MS_MAX * this.#spread());
    this.#choose(loss, wasLive, now);
    this.#phase = 'waiting';
    this.#due = now + wait;
    this.#say(this.state === 'connecting' ? 'connecting' : 'reconnecting', why);
  }

  /**
   * The next transport where this one doesn't work here. Where it isn't the transport's fault, the
   * first again: a WebSocket can't say why it didn't open, the one behind it just did.
   */
  #choose(loss: Loss, wasLive: boolean, now: number): void {
    if (loss.broken) {
      if (this.#transport === 0) this.#worseSince = now;
      this.#transport = (this.#transport + 1) % this.rules.transports;
      this.#stalls = 0;
    } else if (!wasLive && loss.code !== 'token_callback') {
      this.#transport = 0;
    }
  }

  #spread(): number {
    return 0.5 + this.clock.random();
  }

  #backoff(failures: number): number {
    return Math.min(WAIT_MS * 2 ** (failures - 1), WAIT_MS_MAX) * this.#spread();
  }

  #say(state: State, why?: HalleyError): void {
    if (state === this.state && !why) return;
    this.state = state;
    this.shell.state(state, why);
  }

  #arm(): void {
    this.shell.timer(Math.min(this.#due, this.#renewAt));
  }
}

/** Refused by Halley itself, and waiting changes nothing. What a proxy says may pass. */
const isRefused = ({ status, code }: Loss): boolean =>
  (status === 400 || status === 403) && code !== 'http';
