// One connection for all tabs of a browser that have the same server and user.
//
// The tab that holds a lock of the Web Locks API leads: it has the connection, and posts what comes
// to a BroadcastChannel, message by message. To the others that channel is a transport like any
// other: each has a core of its own, which knows its cursor and shows nothing twice. So whoever is
// given the lock next, as the leader was closed, killed or put aside, goes on from its own cursor.
//
// The channel's posts: `hello` asks for the leader, who answers with its state and cursor; each
// message comes with the cursor that the leader had before it.
//
// Invariants:
// - Whoever doesn't have the leader's cursor asks the server, by polls, for what lies between, and
//   holds what the channel brings until then.
// - A leader that doesn't answer while somebody looks at another tab loses the lock to that.

import { connection } from './http.js';
import { claims } from './token.js';
import type { Tokens } from './tokens.js';
import { pollOnce } from './transports/poll.js';
import type { Connection, Listener, Loss, Message, Place, State, Transport } from './types.js';

interface Post {
  hello?: true;
  state?: State;
  message?: Message;
  /** The leader's, before the message. */
  cursor?: string | undefined;
}

/** A leader answers `hello` at once, unless it is frozen. */
const HELLO_MS = 2_000;

export class Share {
  #channel: BroadcastChannel | undefined;
  #name = '';
  #isLeader = false;
  #isOver = false;
  #release = () => {};
  #state: State = 'connecting';
  #cursor: string | undefined;
  #listener: Listener | undefined;
  /** What a tab that doesn't lead does with a post. */
  #take = (_: Post) => {};

  constructor(readonly onState: (state: State) => void) {}

  /** Nothing is shared where it isn't known who this is. */
  async start(place: Place, tokens: Tokens): Promise<void> {
    const user = place.user ?? claims(await tokens.get().catch(() => '') ?? '').sub;
    this.#isLeader = !user;
    if (!user || this.#isOver) return;
    this.#name = `halley ${place.base} ${user}`;
    this.#channel = new BroadcastChannel(this.#name);
    this.#channel.onmessage = ({ data }: { data: Post }) => {
      if (!this.#isLeader) this.#take(data);
      else if (data.hello) this.#post({ state: this.#state, cursor: this.#cursor });
    };
    addEventListener('pagehide', () => this.#yield());
    addEventListener('pageshow', ({ persisted }) => persisted && this.#lock());
    this.#lock();
  }

  end(): void {
    this.#isOver = true;
    this.#yield();
    this.#channel?.close();
  }

  /** The leader's state is everybody's. */
  state(state: State): void {
    this.#state = state;
    if (this.#isLeader) this.#post({ state, cursor: this.#cursor });
  }

  wrap = (transport: Transport): Transport => ({
    ...transport,
    open: (place, listener) => {
      this.#listener = listener;
      return this.#isLeader ? this.#lead(transport, place, listener)
        : this.#follow(place, listener);
    },
  });

  #post(post: Post): void {
    this.#channel?.postMessage(post);
  }

  /** Waits for the lock, or takes it. */
  #lock(steal = false): void {
    this.#yield();
    if (this.#isOver) return;
    let isGiven = false;
    const waiting = new AbortController();
    this.#release = () => waiting.abort();
    navigator.locks.request(this.#name, steal ? { steal } : { signal: waiting.signal }, () => {
      isGiven = true;
      this.#become(true);
      return new Promise<void>((release) => { this.#release = release; });
    }).catch(() => {
      if (!isGiven) return;
      this.#become(false);
      this.#lock();
    });
  }

  #become(isLeader: boolean): void {
    this.#isLeader = isLeader;
    this.#listener?.lost({ code: isLeader ? 'leads' : 'follows', atOnce: true });
  }

  /** Gives the lock to the next, or waits for it no longer. */
  #yield(): void {
    this.#isLeader = false;
    this.#release();
  }

  #lead(transport: Transport, place: Place, listener: Listener): Connection {
    this.#cursor = place.cursor;
    return transport.open(place, {
      ...listener,
      message: (message) => {
        // Answers are the leader's own business; that something came is everybody's.
        this.#post({ message: 'ok' in message || message.error ? {} : message,
          cursor: this.#cursor });
        this.#cursor = message.cursor ?? this.#cursor;
        listener.message(message);
      },
    });
  }

  #follow(place: Place, listener: Listener): Connection {
    return connection(listener, (signal) => new Promise<Loss>((lost, failed) => {
      let held: Message[] | undefined;
      let cursor: string | undefined;
      const silent = setTimeout(() => {
        if (!document.hidden) this.#lock(true);
        lost({ code: 'no_leader' });
      }, HELLO_MS);
      signal.onabort = () => clearTimeout(silent);
      const begin = () => {
        clearTimeout(silent);
        listener.message({});
        if (place.cursor && place.cursor !== cursor) {
          held = [];
          catchUp(place, listener, signal).then(() => {
            for (const message of held!) listener.message(message);
            held = undefined;
          }).catch(failed);
        } else {
          listener.message({ cursor });
        }
      };
      let isBegun = false;
      this.#take = (post) => {
        if (signal.aborted || post.hello) return;
        // Somebody else leads now, or this page was frozen.
        if (isBegun && post.cursor !== cursor) return lost({ code: 'missed', atOnce: true });
        cursor = post.cursor;
        if (!isBegun) begin();
        isBegun = true;
        const { message, state } = post;
        if (state) this.onState(state);
        if (!message) return;
        cursor = message.cursor ?? cursor;
        if (held) held.push(message);
        else listener.message(message);
      };
      this.#post({ hello: true });
    }));
  }
}

/** What lies between a cursor and now. */
async function catchUp(place: Place, listener: Listener, signal: AbortSignal): Promise<void> {
  for (let { cursor } = place, hasMore = true; hasMore && !signal.aborted;) {
    ({ cursor, hasMore } = await pollOnce({ ...place, cursor }, listener, signal, '0'));
  }
}
