// The client whole: besides listening, loops over events, and what a user may do.

import { Listening, type Options } from './listening.js';
import { Operations } from './operations.js';
import { Share } from './share.js';
import type { HalleyError, Item, Message, State, Transport } from './types.js';

export interface PublishOptions {
  /** Under the same id an event is published once. */
  id?: string;
  ack?: 'disk' | 'memory';
}

/** Events that wait for a loop; beyond it the oldest give way to a gap. */
const UNREAD_MAX = 10_000;
const TIMEOUT_MS = 30_000;

export class Halley extends Listening {
  readonly #operations: Operations;

  constructor(url: string, options: Options, transports: Transport[]) {
    const canShare = typeof document !== 'undefined' && navigator.locks
      && typeof BroadcastChannel !== 'undefined' && options.share !== false;
    super(url, options, transports,
      canShare ? (onState) => new Share(onState) : undefined);
    this.#operations = new Operations(this.place, this.tokens, {
      state: () => this.state,
      send: (text) => this.session.send(text),
    }, options.timeoutMs ?? TIMEOUT_MS);
  }

  /** Events and gaps as they come, from this call on; it ends with `close`, or with its loop. */
  events(subject?: string): AsyncIterableIterator<Item> {
    const unread: Item[] = [];
    let isDone = false;
    const waiting: (() => void)[] = [];
    const wake = () => {
      for (const done of waiting.splice(0)) done();
    };
    const offs = [
      this.onItem((item) => {
        if (!item.gap && subject !== undefined && item.subject !== subject) return;
        unread.push(item);
        if (unread.length > UNREAD_MAX) shorten(unread);
        wake();
      }),
      this.onState((state) => {
        isDone ||= state === 'closed';
        wake();
      }),
    ];
    const end = async () => {
      isDone = true;
      unread.length = 0;
      for (const off of offs) off();
      wake();
      return { done: true, value: undefined } as const;
    };
    return {
      [Symbol.asyncIterator]() { return this; },
      async next() {
        while (!unread.length && !isDone) await new Promise<void>((done) => waiting.push(done));
        return unread.length ? { value: unread.shift()! } : end();
      },
      return: end,
    };
  }

  /**
   * About a subject, or to a list of users alone. Resolves when the event is on the server's disk;
   * tried again under its id until then.
   */
  publish(whom: string | string[], data: unknown, { id = newId(), ack }: PublishOptions = {}) {
    const to = typeof whom === 'string' ? { subject: whom } : { to: whom };
    return this.#operations.run<{ id: string }>({ op: 'publish', ...to, data, id, ack });
  }

  /** Durable: the server keeps it, not this connection. */
  follow(subject: string) {
    return this.#operations.run<{ added: number; already: number }>({ op: 'follow', subject });
  }

  unfollow(subject: string) {
    return this.#operations.run<{ removed: number; absent: number }>({ op: 'unfollow', subject });
  }

  /** What this user follows, a page at a time: `next` is the `after` of the next page, or null. */
  following(after = '', limit = 100): Promise<{ following: string[]; next: string | null }> {
    const page = { limit: `${limit}`, ...(after && { after }) };
    return this.#operations.call('GET', 'me/follows', undefined, page);
  }

  presence(user: string): Promise<{ user: string; online: boolean }> {
    return this.#operations.call('GET', `me/presence/${encodeURIComponent(user)}`);
  }

  protected override answer(message: Message): void {
    this.#operations.answer(message);
  }

  protected override change(state: State, why?: HalleyError): void {
    super.change(state, why);
    if (state === 'open') this.#operations.flush();
    else if (state === 'closed') this.#operations.close();
    else this.#operations.lost();
  }
}

/** Every event has one before it is sent first; it needs no secure page, as `randomUUID` does. */
function newId(): string {
  return [...crypto.getRandomValues(new Uint32Array(4))].map((n) => n.toString(36)).join('');
}

/** The older half of what nobody has read becomes a gap. */
function shorten(unread: Item[]): void {
  const gone = unread.splice(0, UNREAD_MAX / 2);
  const timeOf = (item: Item) => (item.gap ? item.gap.from : item.at);
  const gap = { from: timeOf(gone[0]!), to: timeOf(gone.at(-1)!), reason: 'slow_consumer' };
  unread.unshift({ gap });
}
