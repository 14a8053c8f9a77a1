// Listening: who is told of which events, gaps and states.

import { Session } from './session.js';
import type { Share } from './share.js';
import { Tokens, type TokenOption } from './tokens.js';
import type {
  Event, Gap, HalleyError, Item, Message, Place, State, Transport,
} from './types.js';

export interface Options {
  /** A JWT, or a function that gives one, asked before each expires. Null: signed out. */
  token?: TokenOption;
  /** Who this is, where the server asks for no tokens. */
  user?: string;
  /** Where to go on: the `cursor` of an earlier client. */
  cursor?: string;
  /** Names of those that may be used. */
  transports?: string[];
  /** One connection for all tabs with the same server and user: true, where a browser can. */
  share?: boolean;
  /** Longer than the server's `stream.heartbeat`. */
  silenceMs?: number;
  /** How long a publish or follow is tried. */
  timeoutMs?: number;
  fetch?: typeof fetch;
  /** For a Node without one: that of the package `ws`. */
  WebSocket?: unknown;
}

type Off = () => void;

const SILENCE_MS = 75_000;

/** `https://host/`, with or without a path or the slash; in a page, also what is relative to it. */
const baseOf = (url: string) =>
  new URL(url.replace(/\/*$/, '/v1/'), globalThis.location?.href).href;

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

function add<T>(set: Set<T>, one: T): Off {
  set.add(one);
  return () => { set.delete(one); };
}

/** What a page that only listens needs; `Halley` has the rest. */
export class Listening {
  protected readonly place: Place;
  protected readonly tokens: Tokens;
  protected readonly session: Session;
  protected readonly share: Share | undefined;
  readonly #items = new Set<(item: Item) => void>();
  readonly #states = new Set<(state: State, why?: HalleyError) => void>();
  #state: State = 'connecting';
  #why: HalleyError | undefined;

  constructor(
    url: string, options: Options, transports: Transport[],
    makeShare?: (onState: (state: State) => void) => Share,
  ) {
    this.share = makeShare?.((state) => this.change(state));
    const { user, cursor, silenceMs = SILENCE_MS } = options;
    this.place = {
      base: baseOf(url), user, cursor,
      fetch: options.fetch ?? fetch,
      WebSocket: (options.WebSocket ?? globalThis.WebSocket) as Place['WebSocket'],
    };
    this.tokens = new Tokens(options.token);
    const wanted = transports.filter(({ name }) => options.transports?.includes(name) ?? true)
      .map(this.share?.wrap ?? ((transport) => transport));
    this.session = new Session(this.place, wanted, this.tokens, silenceMs, {
      show: (item) => tell(this.#items, item),
      state: (state, why) => this.change(state, why),
      answer: (message) => this.answer(message),
    });
    // Whoever made it adds handlers first.
    const start = () => { if (this.#state !== 'closed') this.session.start(); };
    if (this.share) void this.share.start(this.place, this.tokens).then(start);
    else queueMicrotask(start);
  }

  get state(): State {
    return this.#state;
  }

  /** Of the connection that is there, or being opened. */
  get transport(): string | undefined {
    return this.session.transport;
  }

  /** Where a client that is made later goes on. */
  get cursor(): string | undefined {
    return this.session.cursor;
  }

  /** Events about a subject, to a handler. What it gives back ends that. */
  on(subject: string, handler: (event: Event) => void): Off {
    return this.onEvent((event) => event.subject === subject && handler(event));
  }

  /** Events about whatever subject, and gaps, in their order. */
  onItem(handler: (item: Item) => void): Off {
    return add(this.#items, handler);
  }

  /** Events about whatever subject. */
  onEvent(handler: (event: Event) => unknown): Off {
    return this.onItem((item) => item.gap || handler(item as Event));
  }

  /** What can't be told any more: show what is there now. */
  onGap(handler: (gap: Gap) => void): Off {
    return this.onItem((item) => item.gap && handler(item.gap));
  }

  /** Called now, and whenever it changes, with what the matter is. */
  onState(handler: (state: State, why?: HalleyError) => void): Off {
    tell([handler], this.#state, this.#why);
    return add(this.#states, handler);
  }

  /** Nothing comes any more, and what waits is refused with `closed`. */
  close(): void {
    this.session.close();
  }

  /** The answer to an operation. */
  protected answer(_: Message): void {}

  protected change(state: State, why?: HalleyError): void {
    this.#state = state;
    this.#why = why;
    this.share?.state(state);
    if (state === 'closed') this.share?.end();
    tell(this.#states, state, why);
  }
}
