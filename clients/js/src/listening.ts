// Listening: which handlers get which events, gaps and states.

import type { MakeCore } from './core.js';
import { PRESENCE } from './http.js';
import { Session } from './session.js';
import {
  HalleyError, type Event, type Gap, type Item, type News, type State, type Transport,
} from './types.js';

export interface ListenOptions {
  /** A JWT, or a function that gives one, asked before each expires. Null: signed out. */
  token?: TokenOption;
  /** Who this is, where the server asks for no tokens. */
  user?: string;
  /** Where to go on: the `cursor` of an earlier client. */
  cursor?: string;
  /** Events about these come, too, without a follow. */
  subjects?: string[];
  /** Who comes to these and leaves is told; '*' is all whom the user follows. */
  presence?: string[];
  /** So many of the newest about each, to begin with. */
  last?: number;
  /** Longer than the server's `stream.heartbeat`. */
  silenceMs?: number;
  fetch?: typeof fetch;
}

export type TokenOption = string | (() => string | null | Promise<string | null>);

type Off = () => void;

const SILENCE_MS = 75_000;
const TOKEN_MS = 25_000;

/** `https://host/`, with or without a path or the slash; in a page, also what is relative to it. */
const baseOf = (url: string) =>
  new URL(url.replace(/\/*$/, '/v1/'), globalThis.location?.href).href;

/** A callback that never settles has failed, and is asked again. */
const inTime = (ask: () => string | null | Promise<string | null>) =>
  new Promise<string | null>((done, fail) => {
    const timer = setTimeout(() => fail('timeout'), TOKEN_MS);
    (async () => ask())().then(done, fail).finally(() => clearTimeout(timer));
  });

/** A handler that throws is its own fault; the others get theirs. */
function tell<Args extends unknown[]>(handlers: Iterable<(...args: Args) => void>, ...args: Args) {
  for (const handler of [...handlers]) {
    try {
      handler(...args);
    } catch (error) {
      console.error(error);
    }
  }
}

/** Whether an event is about a subject; nothing else is. */
export const isAbout = (subject: string, { subject: one, subjects }: Partial<Event>) =>
  one === subject || subjects?.includes(subject);

function add<T>(set: Set<T>, one: T): Off {
  set.add(one);
  return () => { set.delete(one); };
}

/** What a page that only listens needs; `Halley` has the rest. */
export abstract class Listening extends Session {
  readonly #items = new Set<(item: Item) => void>();
  readonly #states = new Set<(state: State, why?: HalleyError) => void>();
  readonly state: State = 'connecting';
  #why: HalleyError | undefined;

  constructor(url: string, options: ListenOptions, transports: Transport[], Made: MakeCore) {
    const {
      user, cursor, last, silenceMs = SILENCE_MS, token, subjects = [], presence = [],
    } = options;
    const asks = typeof token === 'function';
    super({
      base: baseOf(url), user, last, fetch: options.fetch ?? fetch,
      subjects: [...subjects, ...presence.map((one) => PRESENCE + one)],
    }, transports, {
      ways: transports.length, cursor, silenceMs, asks, token: asks ? undefined : token,
    }, Made, asks ? () => inTime(token) : undefined);
    // Whoever made it adds handlers first.
    queueMicrotask(() => {
      if (transports[0]) this.start();
      else this.core.close(new HalleyError({
        code: 'no_transport', message: 'none of `transports` is here: give a `WebSocket`',
      }));
    });
  }

  /** Where a client that is made later goes on. */
  get cursor(): string | undefined {
    return this.core.cursor;
  }

  /** Events about a subject, to a handler. What it gives back ends that. */
  on(subject: string, handler: (event: Event) => void): Off {
    return this.onEvent((event) => isAbout(subject, event) && handler(event));
  }

  /** Events about whatever subject, gaps, and who comes and goes, in their order. */
  onItem(handler: (item: Item) => void): Off {
    return add(this.#items, handler);
  }

  /** Events about whatever subject. */
  onEvent(handler: (event: Event) => unknown): Off {
    return this.onItem((item) => item.id && handler(item as Event));
  }

  /** What can't be told any more: show what is there now. */
  onGap(handler: (gap: Gap) => void): Off {
    return this.onItem((item) => item.gap && handler(item.gap));
  }

  /** Who comes and goes. */
  onPresence(handler: (presence: News['presence']) => void): Off {
    return this.onItem((item) => item.presence && handler(item.presence));
  }

  /** Called now, and whenever it changes, with what the matter is. */
  onState(handler: (state: State, why?: HalleyError) => void): Off {
    tell([handler], this.state, this.#why);
    return add(this.#states, handler);
  }

  /** Nothing comes any more, and what waits is refused with `closed`. */
  close(): void {
    this.core.close();
  }

  /** @internal */
  show(item: Item): void {
    tell(this.#items, item);
  }

  /** @internal */
  override report(state: State, why?: HalleyError): void {
    super.report(state, why);
    (this as { state: State }).state = state;
    this.#why = why;
    tell(this.#states, state, why);
  }
}
