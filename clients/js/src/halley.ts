// The client whole: besides listening, loops over events, and what a user may do.

import { now } from './clock.js';
import { Doing, type Operation } from './doing.js';
import { isPresence, PRESENCE } from './http.js';
import { isAbout, type ListenOptions } from './listening.js';
import { TIMER_MS_MAX } from './session.js';
import { Share } from './share.js';
import { Subjects } from './subjects.js';
import {
  HalleyError, type Connection, type Ended, type Event, type Gap, type Item, type Message,
  type Place, type State, type Transport,
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
  /** @internal */
  readonly subjects = new Subjects(this.place.subjects, this);
  /** Of each subject the end of what was asked about it, which is done in its order. */
  #turns = new Map<string, Promise<void>>();
  /** What `say` was called with last, as JSON. */
  #saying!: string;

  constructor(url: string, options: Options, all: Transport[]) {
    const { transports, WebSocket = globalThis.WebSocket } = options;
    super(url, options, all.filter(({ name }) => (transports?.includes(name) ?? true)
      && (WebSocket || name !== 'websocket')), WayCore);
    this.place.WebSocket = WebSocket;
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
    return this.#inTurn(subject, true);
  }

  unsubscribe(subject: string): Promise<void> {
    return this.#inTurn(subject, false);
  }

  /** What is asked about one subject is done in its order: the last one wins. */
  #inTurn(subject: string, isWanted: boolean): Promise<void> {
    const until = now() + this.patience;
    const act = async () => {
      let timer;
      try {
        await new Promise<void>((done, fail) => {
          const refuse = (code: string) => fail(new HalleyError({ code }));
          if (this.state === 'closed') return refuse('closed');
          const takeBack = this.subjects.change(subject, isWanted, done, fail);
          timer = setTimeout(() => {
            takeBack();
            refuse('timeout');
          }, until - now());
        });
      } finally {
        clearTimeout(timer);
      }
    };
    const before = this.#turns.get(subject);
    const mine = before ? before.then(act) : act();
    const end: Promise<void> = mine.catch(() => {}).then(() => {
      if (this.#turns.get(subject) === end) this.#turns.delete(subject);
    });
    this.#turns.set(subject, end);
    return mine;
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

  /** @internal */
  leads(): boolean {
    return this.#share?.isLeader ?? true;
  }

  /** @internal */
  hello(): void {
    this.connection!.hello!();
  }

  /** @internal */
  hasWayBack(): boolean {
    return !!this.connection?.send;
  }

  /** @internal However long it takes: who waits for it has a time of its own. */
  async askAbout(op: string, subject: string): Promise<boolean> {
    const what = isPresence(subject) ? 'presence' : 'subject';
    return !!await this.send({ op, [what]: subject.replace(PRESENCE, '') }, TIMER_MS_MAX);
  }

  protected override beside(subject: string): string[] {
    return [...this.subjects.allowed(), subject];
  }

  /** @internal */
  reopen(): void {
    const { connection } = this;
    // What has just come is of several messages, and the last one has the cursor.
    queueMicrotask(() => {
      if (this.connection === connection) {
        this.core.lost({ code: 'reopen', atOnce: true, quiet: true });
      }
    });
  }

  protected override open(transport: Transport, place: Place): Connection {
    place.subjects = this.subjects.opening();
    return (this.#share ?? transport).open(place, this.core, transport);
  }

  /** @internal */
  override live(): void {
    this.subjects.live();
  }

  /** @internal */
  override drop(): void {
    super.drop();
    this.subjects.lost();
  }

  /** @internal */
  override take(message: Message): void {
    this.#share?.pass({ message });
    super.take(message);
    const { ended } = message;
    if (ended) this.#end(ended);
  }

  /** What has ended isn't said again. The page is told, as of a failed renewal. */
  #end({ reason: code, subjects = [], presence = [], state }: Ended): void {
    const all = [...presence.map((one) => PRESENCE + one), ...subjects];
    const why = new HalleyError({ code, message: `${all}` });
    for (const one of all) this.subjects.ended(one, why);
    if (state) this.place.said = undefined;
    super.report(this.state, why);
  }

  /** @internal */
  override report(state: State, why?: HalleyError): void {
    super.report(state, why);
    if (state === 'closed') this.subjects.end(new HalleyError({ code: state }));
    this.#share?.spread(state, why);
  }
}

/** From when to when an item is; what is told of presence has no time. */
const timesOf = ({ gap, at }: { gap?: Gap | undefined; at?: number }) =>
  (gap ? [gap.from, gap.to] : at ?? []);
