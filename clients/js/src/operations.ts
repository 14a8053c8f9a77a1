// What a user does: publish, follow, ask. Each is tried until it is answered or its time is over.
//
// An operation waits while there is no connection. By a WebSocket it is a message (http.md 18),
// else a request under `/v1/me`. It is tried again only where that does nothing twice: follows are
// what they are, and each event has an id from its first try on.

import { lossOf, request } from './http.js';
import type { Tokens } from './tokens.js';
import { HalleyError, type Message, type Place, type State } from './types.js';

interface Operation {
  op: 'publish' | 'follow' | 'unfollow';
  subject?: string;
  to?: string[];
  data?: unknown;
  id?: string | undefined;
  ack?: string | undefined;
}

interface Waiting {
  operation: Operation;
  /** Is there an answer to come? */
  way?: 'message' | 'request' | 'pause' | undefined;
  until: number;
  done(result?: unknown, error?: HalleyError): void;
}

export interface Way {
  state(): State;
  /** False where there is no way for messages. */
  send(text: string): boolean;
}

const WAITING_MAX = 1_000;
/** The server lets so many of a session wait; beyond it there is nothing to win. */
const SENT_MAX = 16;
const AGAIN = /^(brain_|response_|operations_|unreachable|http$)/;

export class Operations {
  #waiting = new Map<number, Waiting>();
  #ref = 0;

  constructor(
    readonly place: Place, readonly tokens: Tokens, readonly way: Way, readonly timeoutMs: number,
  ) {}

  run<T>(operation: Operation): Promise<T> {
    return new Promise((resolve, reject) => {
      const isClosed = this.way.state() === 'closed';
      if (isClosed || this.#waiting.size >= WAITING_MAX) {
        return reject(new HalleyError(isClosed ? 'closed' : 'too_many_waiting'));
      }
      const ref = this.#ref += 1;
      const timer = setTimeout(() => this.#waiting.get(ref)?.done(undefined,
        new HalleyError('timeout', 'it may be done or not')), this.timeoutMs);
      this.#waiting.set(ref, {
        operation,
        until: Date.now() + this.timeoutMs,
        done: (result, error) => {
          clearTimeout(timer);
          this.#waiting.delete(ref);
          if (error) reject(error);
          else resolve(result as T);
          this.flush();
        },
      });
      this.flush();
    });
  }

  /** Sends what may go now. */
  flush(): void {
    if (this.way.state() !== 'open') return;
    let sent = 0;
    for (const [ref, waiting] of this.#waiting) {
      if ((sent += 1) > SENT_MAX) return;
      if (waiting.way) continue;
      if (this.way.send(JSON.stringify({ ref, ...waiting.operation }))) waiting.way = 'message';
      else this.#request(ref, waiting);
    }
  }

  /** The connection is gone: what wasn't answered by message goes again. */
  lost(): void {
    for (const waiting of this.#waiting.values()) {
      if (waiting.way === 'message') waiting.way = undefined;
    }
  }

  close(): void {
    for (const { done } of [...this.#waiting.values()]) done(undefined, new HalleyError('closed'));
  }

  answer({ ref, ok, error }: Message): void {
    const waiting = this.#waiting.get(ref as number);
    if (!waiting) return;
    const after = error?.retry_after_s;
    if (error) this.#failed(waiting, error.code, error.message, undefined, after && after * 1_000);
    else waiting.done(ok);
  }

  #failed(waiting: Waiting, code: string, message?: string, status?: number, ms?: number): void {
    const wait = ms ?? 500 + 1_000 * Math.random();
    const mayPass = ms !== undefined || AGAIN.test(code) || status! >= 500;
    if (!mayPass || Date.now() + wait > waiting.until) {
      return waiting.done(undefined, new HalleyError(code, message, status, ms));
    }
    waiting.way = 'pause';
    setTimeout(() => {
      waiting.way = undefined;
      this.flush();
    }, wait);
  }

  async #request(ref: number, waiting: Waiting): Promise<void> {
    waiting.way = 'request';
    const { op, ...event } = waiting.operation;
    try {
      if (op === 'publish') {
        return waiting.done(await this.call('POST', 'me/events', event));
      }
      const method = op === 'follow' ? 'POST' : 'DELETE';
      const { errors, ...done } = await this.call(method, 'me/follows', event);
      if (!errors.length) return waiting.done(done);
      this.answer({ ref, error: errors[0].error });
    } catch (error) {
      const { code, message, status, retryAfterMs } = error as HalleyError;
      this.#failed(waiting, code, message, status, retryAfterMs);
    }
  }

  /** One request, with a new token where the last one is over. */
  async call(method: string, path: string, body?: unknown, more?: Record<string, string>) {
    for (let isAgain = false; ; isAgain = true) {
      const token = await this.tokens.get(isAgain) ?? undefined;
      const init: RequestInit = { method };
      if (body) {
        init.body = JSON.stringify(body);
        init.headers = {
          'content-type': path === 'me/follows' ? 'application/x-ndjson' : 'application/json',
        };
      }
      const response = await request({ ...this.place, cursor: undefined, token }, path, init, more)
        .catch((error) => { throw new HalleyError('unreachable', `${error}`); });
      if (response.ok) return response.json();
      const { code, message, status, retryAfterMs } = await lossOf(response);
      if (status === 401 && this.tokens.kind === 'asked' && !isAgain) continue;
      throw new HalleyError(code, message, status, retryAfterMs);
    }
  }
}
