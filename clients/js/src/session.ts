// What the core has decided, done: opens connections, sets the timer, asks for tokens, and tells
// the core what happened. One session lives as long as its client, over many connections.

import { Core, type Shell } from './core.js';
import type { Tokens } from './tokens.js';
import {
  HalleyError, type Connection, type Item, type Message, type Place, type State, type Transport,
} from './types.js';

/** Who has a session. */
export interface Owner {
  show(item: Item): void;
  state(state: State, why?: HalleyError): void;
  /** The answer to an operation that was sent. */
  answer(message: Message): void;
}

/** A longer one would be no time at all to `setTimeout`. */
const TIMER_MS_MAX = 2 ** 30;

export class Session implements Shell {
  readonly #core: Core;
  readonly #transports: Transport[];
  #connection: Connection | undefined;
  #transport: string | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #unlisten = () => {};

  constructor(
    readonly place: Place, transports: Transport[], readonly tokens: Tokens, silenceMs: number,
    readonly owner: Owner,
  ) {
    this.#transports = transports.filter(({ isThere }) => isThere?.(place) ?? true);
    this.#core = new Core(
      { transports: this.#transports.length, cursor: place.cursor, tokens: tokens.kind, silenceMs },
      { now: Date.now, random: Math.random }, this,
    );
  }

  get cursor(): string | undefined {
    return this.#core.cursor;
  }

  /** Of the connection that is open, or being opened. */
  get transport(): string | undefined {
    return this.#transport;
  }

  start(): void {
    this.#unlisten = listenToPage(this.#core);
    this.#core.start();
  }

  close(): void {
    this.#core.close();
  }

  /** False where this connection has no way back. */
  send(text: string): boolean {
    if (!this.#connection?.send) return false;
    this.#connection.send(text);
    return true;
  }

  open(transport: number, token: string | undefined, cursor: string | undefined): void {
    const { name, open } = this.#transports[transport]!;
    let connection: Connection | undefined;
    // What an old connection still says is nobody's business. Before `open` returns none speaks.
    const ifMine = <T>(act: (value: T) => void) => (value: T) => {
      if (connection && connection === this.#connection) act(value);
    };
    this.#transport = name;
    try {
      connection = open({ ...this.place, token, cursor }, {
        message: ifMine((message: Message) => this.#take(message)),
        retry: ifMine((ms: number) => this.#core.retry(ms)),
        lost: ifMine((loss) => this.#core.lost(loss)),
      });
      this.#connection = connection;
    } catch (error) {
      // A browser refuses some addresses at once, as `ws:` in a page of https.
      queueMicrotask(() => this.#core.lost({ code: 'refused', message: `${error}`, broken: true }));
    }
  }

  #take(message: Message): void {
    this.#core.message(message);
    if ('ok' in message || message.error) this.owner.answer(message);
  }

  drop(): void {
    this.#connection?.drop();
    this.#connection = this.#transport = undefined;
  }

  ask(): void {
    this.tokens.get(true).then(
      (token) => this.#core.token(token),
      (error) => this.#core.tokenFailed(`${error}`),
    );
  }

  renew(token: string): void {
    this.send(JSON.stringify({ op: 'token', token }));
  }

  /** 14.7: the token once more is what is answered without a decision of anybody. */
  probe(): boolean {
    return this.send(JSON.stringify({ op: 'token', token: this.tokens.current ?? '' }));
  }

  show(item: Item): void {
    this.owner.show(item);
  }

  state(state: State, why?: HalleyError): void {
    if (state === 'closed') this.#unlisten();
    this.owner.state(state, why);
  }

  timer(at: number): void {
    clearTimeout(this.#timer);
    if (at === Infinity) return;
    const ms = Math.min(Math.max(at - Date.now(), 0), TIMER_MS_MAX);
    this.#timer = setTimeout(() => this.#core.tick(), ms);
  }
}

/** What a page knows of its network and of itself; gives what ends it. Elsewhere there is none. */
function listenToPage(core: Core): () => void {
  if (typeof document === 'undefined') return () => {};
  const listening = new AbortController();
  const on = (target: EventTarget, type: string, act: () => void) =>
    target.addEventListener(type, act, listening);
  on(window, 'online', () => core.wake(true));
  on(window, 'offline', () => core.sleep());
  // A page with a connection isn't kept for "back"; it comes back to where it was by its cursor.
  on(window, 'pagehide', () => core.sleep('hidden'));
  on(window, 'pageshow', () => core.wake());
  on(document, 'resume', () => core.wake());
  on(document, 'visibilitychange', () => document.hidden || core.wake());
  return () => listening.abort();
}
