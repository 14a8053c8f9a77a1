// The client whole: besides listening, loops over events, and what a user may do.

import { Doing, type Operation } from './doing.js';
import { isPresence, PRESENCE } from './http.js';
import { isAbout, type ListenOptions } from './listening.js';
import { Share } from './share.js';
import type {
  Connection, Event, Gap, HalleyError, Item, Message, Place, State, Transport,
} from './types.js';
import { WayCore } from './ways.js';

export interface Options extends ListenOptions {
  /** Names of those that may be used. */
  transports?: string[];
  /** One connection for all tabs with the same server and user: true, where a browser can. */
  share?: boolean;
  /** How long a publish or follow is tried. */
  timeoutMs?: number;
  /** For a Node without one: that of the package `ws`. */
  WebSocket?: unknown;
}

/** Events that wait for a loop; beyond it the oldest give way to a gap. */
const UNREAD_MAX = 10_000;

export class Halley extends Doing {
  readonly #share: Share | undefined;
  /** Who wants which subjects: this client itself, as '', and the tabs that it leads. */
  #wanted!: Map<string, string[]>;
  /** What `say` was called with last, as JSON. */
  #saying!: string;

  constructor(url: string, options: Options, all: Transport[]) {
    const { transports, WebSocket = globalThis.WebSocket } = options;
    super(url, options, all.filter(({ name }) => (transports?.includes(name) ?? true)
      && (WebSocket || name !== 'websocket')), WayCore);
    this.place.WebSocket = WebSocket;
    this.leaveAll(this.place.subjects);
    this.patience = options.timeoutMs ?? this.patience;
    // Whoever has locks has channels.
    if (globalThis.document && navigator.locks && options.share !== false) {
      this.#share = new Share(this);
    }
  }

  protected override async start(): Promise<void> {
    await this.#share?.start();
    super.start();
  }

  /** Events and gaps as they come, from this call on; it ends with `close`, or with its loop. */
  events(subject?: string): AsyncIterableIterator<Item> {
    const unread: Item[] = [];
    let isDone = false;
    let changed: Promise<void>;
    let change: (() => void) | undefined;
    const wake = () => {
      change?.();
      changed = new Promise((done) => { change = done; });
    };
    const offs = [
      this.onItem((item) => {
        if (!item.gap && subject !== undefined && !isAbout(subject, item as Event)) return;
        unread.push(item);
        if (unread.length > UNREAD_MAX) {
          const times = unread.splice(0, UNREAD_MAX / 2).flatMap(timesOf);
          unread.unshift({
            gap: { from: times[0] ?? null, to: times.pop() ?? null, reason: 'slow_consumer' },
          });
        }
        wake();
      }),
      this.onState((state) => {
        isDone ||= state === 'closed';
        wake();
      }),
    ];
    const end = async () => {
      for (const off of offs) off();
      isDone = true;
      unread.length = 0;
      wake();
      return { done: true } as IteratorReturnResult<undefined>;
    };
    return {
      [Symbol.asyncIterator]() { return this; },
      async next() {
        while (!unread.length && !isDone) await changed;
        return unread.length ? { value: unread.shift()! } : end();
      },
      return: end,
    };
  }

  /** Events about it come, too, as long as this client lives; the server keeps nothing of it. */
  subscribe(subject: string): Promise<void> {
    return this.wants('', [subject], (own) => [...own, subject]);
  }

  unsubscribe(subject: string): Promise<void> {
    return this.wants('', [], (own) => own.filter((one) => one !== subject));
  }

  /** Who comes to a subject and leaves it is told to `onPresence`; `*`: all whom one follows. */
  watch(subject: string): Promise<void> {
    return this.subscribe(PRESENCE + subject);
  }

  unwatch(subject: string): Promise<void> {
    return this.unsubscribe(PRESENCE + subject);
  }

  /**
   * What others see of this user where it is present, 1 KB of JSON; null for nothing. It is the
   * connection's, so each next one says it again. Only a WebSocket can.
   */
  async say(data: unknown): Promise<void> {
    const me = this;
    let said: string;
    this.#saying = JSON.stringify(data) ?? 'null';
    const keep = () => {
      this.place.said = said;
      this.#share?.spread(this.state);
    };
    // Whenever it is sent, first or again, it is what was said last.
    await this.send({ op: 'state', get data() { return JSON.parse(said = me.#saying); } })
      .then(keep, (error) => {
        // No session that could say it, yet.
        if (error.status === 409) keep();
        throw error;
      });
  }

  /** A state that this tab can't say itself is for the one that leads. */
  protected override tell(operation: Operation): boolean {
    return super.tell(operation) || (operation.op === 'state' && !!this.#share?.handOn(operation));
  }

  /** @internal A tab wants these subjects, and no others but where `next` says so. */
  async wants(tab: string, subjects: string[], next = (_: string[]) => subjects): Promise<void> {
    const isNew = (one: string) => !this.place.subjects.includes(one);
    const say = (op: string, all: string[]) => Promise.all(all.map((one) =>
      this.send<{ cursor?: string }>({
        op, [isPresence(one) ? 'presence' : 'subject']: one.replace(PRESENCE, ''),
      })));
    // Asked for once more, presence is told from its beginning: to the tab that comes later.
    const told = await say('subscribe', subjects.filter((one) => isPresence(one) || isNew(one)));
    const before = this.place.subjects;
    this.#wanted.set(tab, [...new Set(next(this.#wanted.get(tab) ?? []))]);
    this.place.subjects = [...new Set([...this.#wanted.values()].flat())];
    // A poll's answer has a cursor; a connection knows only what it was itself told.
    if (this.connection?.send && told.every((one) => !one.cursor)) {
      await say('unsubscribe', before.filter(isNew));
    // Where the connection can't be told, another one is.
    } else if (`${before}` !== `${this.place.subjects}`) {
      this.core.lost({ code: 'subjects', atOnce: true, quiet: true });
    }
  }

  /** @internal No tab is led any more, or none yet. */
  leaveAll(own = this.#wanted.get('')!): void {
    this.place.subjects = own;
    this.#wanted = new Map([['', own]]);
  }

  protected override open(transport: Transport, place: Place): Connection {
    return (this.#share ?? transport).open(place, this.core, transport);
  }

  /** @internal */
  override take(message: Message): void {
    this.#share?.pass({ message });
    super.take(message);
  }

  /** @internal */
  override report(state: State, why?: HalleyError): void {
    super.report(state, why);
    this.#share?.spread(state, why);
  }
}

/** From when to when an item is; what is told of presence has no time. */
const timesOf = ({ gap, at }: { gap?: Gap | undefined; at?: number }) =>
  (gap ? [gap.from, gap.to] : at ?? []);
