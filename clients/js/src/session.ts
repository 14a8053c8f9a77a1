// Carries out the core's decisions: opens connections, sets the timer, calls for tokens, and
// reports events to the core. One session lives as long as its client, over many connections.
//
// Invariant: a connection that was dropped says nothing more, or what it says meets a core that
// has none; the next one is opened by a timer, never in the same turn.

import { now } from './clock.js';
import type { Core, MakeCore, Rules } from './core.js';
import type { Ask, Connection, HalleyError, Item, Place, State, Transport } from './types.js';

/** A longer one would be no time at all to `setTimeout`. */
export const TIMER_MS_MAX = 1_000_000_000;

export abstract class Session {
  /** @internal */
  readonly core: Core;
  /** Of the connection that is there, or being opened. */
  transport: string | undefined;
  protected connection: Connection | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #unlisten: (() => void) | undefined;

  constructor(
    /** @internal */ readonly place: Place,
    /** @internal */ readonly ways: Transport[],
    rules: Rules,
    Made: MakeCore,
    /** @internal Gives a new token each time. */ readonly newToken: Ask | undefined,
  ) {
    this.core = new Made(rules, { now, wall: Date.now, random: Math.random }, this);
  }

  protected start(): void {
    if (this.core.state !== 'closed') {
      this.#unlisten = listenToPage(this.core);
      this.core.start();
    }
  }

  /** @internal */
  dial(token: string | undefined, cursor: string | undefined): void {
    const way = this.ways[this.core.transport]!;
    this.transport = way.name;
    this.connection = this.open(way, { ...this.place, token, cursor });
  }

  protected abstract open(transport: Transport, place: Place): Connection;

  /** @internal */
  live(): void {}

  /** @internal */
  drop(): void {
    this.connection?.drop();
    this.connection = this.transport = undefined;
  }

  /** @internal */
  abstract getToken(isAgain: boolean): ReturnType<Ask>;

  /** @internal */
  ask(): void {
    const { core } = this;
    this.getToken(true).then((token) => core.token(token), (error) => core.tokenFailed(`${error}`));
  }

  /** @internal */
  abstract show(item: Item): void;

  /** @internal */
  report(state: State, _why?: HalleyError): void {
    if (state === 'closed') this.#unlisten?.();
  }

  /** @internal */
  timer(at: number): void {
    clearTimeout(this.#timer);
    if (at === Infinity) return;
    const ms = Math.min(Math.max(at - now(), 0), TIMER_MS_MAX);
    this.#timer = setTimeout(() => this.core.tick(), ms);
  }
}

/** What a page knows of its network and of itself; gives what ends it. Elsewhere there is none. */
function listenToPage(core: Core): () => void {
  if (!globalThis.document) return () => {};
  const listening = new AbortController();
  const on = (target: EventTarget, type: string, act: () => void) =>
    target.addEventListener(type, act, listening);
  on(window, 'online', () => core.wake(true));
  on(window, 'offline', () => core.lost({ code: 'offline' }));
  // A page with a connection isn't kept for "back"; it comes back to where it was by its cursor.
  on(window, 'pagehide', () => core.lost({ code: 'hidden' }));
  on(window, 'pageshow', () => core.wake());
  on(document, 'resume', () => core.wake());
  on(document, 'visibilitychange', () => document.hidden || core.wake());
  return () => listening.abort();
}
