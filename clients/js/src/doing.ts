// A user's requests: publish, follow, presence. Each is tried until it is answered or its time is
// over.
//
// An operation waits while there is no connection. By a WebSocket it is a message (http.md 18),
// else a request under `/v1/me`. It is tried again only where that does nothing twice: follows are
// what they are, each event has an id from its first try on, and what the user says of itself is
// what it says by then.
//
// No request subscribes a session. A poll that waits for nothing shows whether the server would
// allow it, presence too (22.5), and gives `undefined`; the next connection says the subject.

import { now } from './clock.js';
import { limited, lossOf, PRESENCE, request, type More } from './http.js';
import { Listening } from './listening.js';
import { claims } from './token.js';
import { HalleyError, type Ask, type Message, type State } from './types.js';

export interface PublishOptions {
  /** Under the same id an event is published once. */
  id?: string;
  ack?: 'disk' | 'memory';
  /** Its subject's latest value from now on, beyond the retention. */
  keep?: boolean;
}

export interface Operation {
  op: string;
  ref?: string;
  subject?: string;
  presence?: string;
  [member: string]: unknown;
}

/** How an operation is in work, so that it isn't sent a second time. */
const enum Way { None, Message, Request }

interface Waiting {
  operation: Operation;
  way?: Way;
  until: number;
  done(result: any): void;
  fail(error: HalleyError): void;
}

const TIMEOUT_MS = 30_000;
const WAITING_MAX = 1_000;
/** The server lets so many of a session wait; beyond it there is nothing to win. */
const SENT_MAX = 16;
/** Characters: a longer message might end the connection (`limits.message_bytes_max`). */
const TEXT_MAX = 20_000;
/** `brain_…`, `response_…`, `operations_…`, `unreachable`, `http`. */
const AGAIN = /^(brain|resp|oper|unr|http$)/;

/** Every event has one before it is sent first; it needs no secure page, as `randomUUID` does. */
export const newId = (): string => `${crypto.getRandomValues(new Uint32Array(3))}`;

/**
 * In the query, as some proxies decode `%2F` in paths (http.md 28.1). What can't be written in an
 * address is an exception here, and would be another id there. An object, as an empty id is said.
 */
const about = (id: string) => ({ subject: Object(encodeURI(id) && id) });

export abstract class Doing extends Listening {
  /** How long each is tried, in milliseconds. */
  protected patience = TIMEOUT_MS;
  #waiting = new Map<string, Waiting>();
  /** The last token that was given. */
  #token: string | null | undefined = this.core.rules.token;
  /** The one that the connection was opened with. */
  protected opened: string | undefined;
  #coming: ReturnType<Ask> | undefined;

  /**
   * About a subject or several, or to a list of users alone. Resolves when the event is on the
   * server's disk; tried again under its id until then.
   */
  publish(
    whom: string | string[] | { subjects: string[] }, data: unknown,
    { id = newId(), ack, keep }: PublishOptions = {},
  ) {
    const to = typeof whom === 'string' ? { subject: whom }
      : Array.isArray(whom) ? { to: whom } : whom;
    return this.send<{ id: string }>({ op: 'publish', ...to, data, id, ack, keep });
  }

  /** Durable: the server keeps it, not this connection. */
  follow(subject: string) {
    return this.send<{ added: number; already: number }>({ op: 'follow', subject });
  }

  unfollow(subject: string) {
    return this.send<{ removed: number; absent: number }>({ op: 'unfollow', subject });
  }

  /** What this user follows, a page at a time: `next` is the `after` of the next page, or null. */
  following(after?: string, limit?: number): Promise<{ following: string[]; next: string | null }> {
    return this.call('GET', 'me/follows', { limit, after });
  }

  async presence(user: string): Promise<{ user: string; online: boolean }> {
    return this.call('GET', 'me/presence', about(user));
  }

  /** Any other operation of a WebSocket (http.md 18), as it is; gives what is answered. */
  async send<T>(operation: Operation, patience = this.patience): Promise<T> {
    const code = this.state === 'closed' ? 'closed'
      : this.#waiting.size >= WAITING_MAX && 'too_many_waiting';
    if (code) throw new HalleyError({ code });
    // No other tab has the same, as each hears the answers of all.
    const ref = newId();
    let timer;
    try {
      return await new Promise<T>((done, fail) => {
        timer = setTimeout(() => fail(new HalleyError({ code: 'timeout' })), patience);
        this.#waiting.set(ref, { operation, until: now() + patience, done, fail });
        this.#flush();
      });
    } finally {
      clearTimeout(timer);
      this.#waiting.delete(ref);
      this.#flush();
    }
  }

  /** Sends what may go now. */
  #flush(): void {
    if (this.state !== 'open') return;
    for (const [ref, waiting] of [...this.#waiting].slice(0, SENT_MAX)) {
      if (waiting.way) continue;
      if (this.tell({ ref, ...waiting.operation })) waiting.way = Way.Message;
      else this.#request(waiting);
    }
  }

  /** @internal Of all that comes, this is for answers; those of another tab are none. */
  take({ ref, ok, error }: Message): void {
    const waiting = this.#waiting.get(ref as string);
    if (waiting?.way !== Way.Message) return;
    if (!error) return waiting.done(ok);
    const { retry_after_s: after } = error;
    this.#failed(waiting, new HalleyError({ ...error, retryAfterMs: after && after * 1_000 }));
  }

  #failed(waiting: Waiting, error: HalleyError): void {
    const { code, status, retryAfterMs } = error;
    const wait = retryAfterMs ?? 500 + 1_000 * Math.random();
    const mayPass = retryAfterMs || AGAIN.test(code) || status! >= 500;
    if (!mayPass || now() + wait > waiting.until) return waiting.fail(error);
    waiting.way = Way.Request;
    setTimeout(() => {
      waiting.way = Way.None;
      this.#flush();
    }, wait);
  }

  async #request(waiting: Waiting): Promise<void> {
    waiting.way = Way.Request;
    const { op, ...event } = waiting.operation;
    const { subject } = event;
    try {
      waiting.done(await (op.endsWith('follow')
        ? this.call(op === 'follow' ? 'PUT' : 'DELETE', 'me/follows', about(subject!))
        : op === 'subscribe'
          ? this.call('GET', 'poll', { timeout: '0' }, undefined,
            this.beside(subject ?? PRESENCE + event.presence)).then(() => {})
        : op === 'unsubscribe' ? undefined
        : op === 'publish' ? this.call('POST', 'me/events', {}, event)
        : this.call('PUT', `me/${op}`, {}, event)));
    } catch (error) {
      this.#failed(waiting, error as HalleyError);
    }
  }

  /** What an opening would say. */
  protected abstract beside(subject: string): string[];

  /** One request, with a new token where the last one is over. */
  protected async call(
    method: string, path: string, more?: More, body?: object, subjects: string[] = [],
  ) {
    for (let isAgain = false; ; isAgain = true) {
      const token = await this.getToken(isAgain);
      const abort = new AbortController();
      const answered = limited(() => abort.abort());
      let response;
      try {
        response = await request({ ...this.place, subjects, token }, path, {
          method,
          signal: abort.signal,
          ...(body && {
            body: JSON.stringify(body), headers: { 'content-type': 'application/json' },
          }),
        }, more);
        if (response.ok) return await response.json();
      } catch (error) {
        throw new HalleyError({ code: 'unreachable', message: `${error}` });
      } finally {
        answered();
      }
      if (response.status === 401 && this.newToken && !isAgain) continue;
      throw new HalleyError(await lossOf(response));
    }
  }

  /** @internal The token in hand, or a new one; who asks twice at once is given the same. */
  override async getToken(isAgain: boolean): ReturnType<Ask> {
    if (!this.newToken || (this.#token && !isAgain)) return this.#token;
    return this.#coming ??= this.newToken()
      .then((token) => this.#token = token)
      .finally(() => { this.#coming = undefined; });
  }

  /** False where this connection has no way back, or none for so much. */
  protected tell(operation: Operation): boolean {
    const text = JSON.stringify(operation);
    const send = text.length < TEXT_MAX ? this.connection?.send : null;
    send?.(text);
    return !!send;
  }

  /** @internal */
  renew(token: string): boolean {
    // Somebody else is signed in now: nothing of that session is theirs.
    if (claims(token).sub !== claims(this.opened ?? '').sub) {
      this.core.lost({ code: 'other_user', atOnce: true });
      return true;
    }
    return this.tell({ op: 'token', token });
  }

  /** @internal */
  override dial(token: string | undefined, cursor: string | undefined): void {
    this.opened = token;
    super.dial(token, cursor);
  }

  /** @internal 14.7: the token once more is what is answered without a decision of anybody. */
  probe(): boolean {
    return this.tell({ op: 'token', token: this.#token ?? '' });
  }

  /** @internal What wasn't answered by message goes again. */
  override drop(): void {
    super.drop();
    for (const waiting of this.#waiting.values()) {
      if (waiting.way === Way.Message) waiting.way = Way.None;
    }
    // Where the state stays as it is, by a request.
    queueMicrotask(() => this.#flush());
  }

  /** @internal */
  override report(state: State, why?: HalleyError): void {
    super.report(state, why);
    if (state === 'open') this.#flush();
    if (state !== 'closed') return;
    for (const { fail } of this.#waiting.values()) fail(new HalleyError({ code: 'closed' }));
  }
}
