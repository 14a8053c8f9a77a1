// One connection for all tabs of a browser that have the same server and user.
//
// The tab that holds a lock of the Web Locks API leads: it has the connection, and posts what comes
// to a BroadcastChannel, message by message. To the others that channel is a transport like any
// other: each has a core of its own, which knows its cursor and shows nothing twice. So whoever is
// given the lock next, as the leader was closed, killed or put aside, goes on from its own cursor.
//
// The channel's posts: `hello` asks for the leader and says which subjects a tab wants. The leader
// answers at once, and again when its own connection has those subjects, with its state, cursor and
// all its subjects; each message comes with the cursor that the leader had before it.
//
// What the user says of itself goes to the leader, by `say`: it says that as its own, passes the
// answer on as a message, and tells all what is said since. So whoever leads next says it again. In
// `hello` it is for a leader that knows of none: what a tab knew before it slept may be over.
//
// Invariants:
// - Whoever doesn't have the leader's cursor, or has subjects of its own, asks the server, by
//   polls, for what lies between, and holds what the channel brings until then. It asks when the
//   leader has its subjects, so nothing is between that and the channel.
// - Each tab holds a lock of its own. When it goes, however it does, its leader is given that lock,
//   and wants its subjects no longer.
// - A tab whose subjects the leader can't have goes on alone.
// - A leader that doesn't answer while somebody looks at another tab loses the lock to that.

import type { Core } from './core.js';
import { connection } from './http.js';
import { newId, type Operation } from './doing.js';
import { claims } from './token.js';
import { pollOnce } from './transports/poll.js';
import type {
  Ask, Connection, HalleyError, Listener, Loss, Message, Place, State, Transport,
} from './types.js';

interface Post {
  /** Which tab says it. */
  hello?: string;
  by?: string;
  /** Those that the tab wants, or all that the leader has. */
  subjects?: string[];
  /** The tab whose subjects can't be had. */
  alone?: string;
  state?: State;
  said?: string | undefined;
  /** Of a tab's operation `state`. */
  ref?: string | undefined;
  message?: Message | undefined;
  /** The leader's, before the message. */
  cursor?: string | undefined;
}

/** Whose tab it is. */
export interface Sharer {
  readonly place: Place;
  readonly core: Core;
  readonly state: State;
  say(data: unknown): Promise<void>;
  report(state: State): void;
  getToken(isAgain: boolean): ReturnType<Ask>;
  wants(tab: string, subjects: string[]): Promise<void>;
  leaveAll(): void;
}

/** A leader answers `hello` at once, unless it is frozen. */
const HELLO_MS = 2_000;

export class Share {
  #channel: BroadcastChannel | undefined;
  #tab!: string;
  #isLeader: boolean | undefined;
  /** The tabs whose locks are waited for. */
  #led = new Set<string>();
  /** Its end lets go of the locks. */
  #holding = new AbortController();
  /** What a tab that doesn't lead does with a post. */
  #take: ((post: Post) => void) | undefined;

  constructor(readonly sharer: Sharer) {}

  /** Nothing is shared where it isn't known who this is. */
  async start(): Promise<void> {
    const { place } = this.sharer;
    const user = place.user
      ?? claims(await this.sharer.getToken(false).catch(() => {}) as string).sub;
    this.#isLeader = !user;
    if (!user || this.sharer.state === 'closed') return;
    this.#channel = new BroadcastChannel(`${place.base} ${user}`);
    this.#channel.onmessage = ({ data }: { data: Post }) => {
      const { by, hello, ref, said } = data;
      if (by && said) place.said = said;
      if (!this.#isLeader) return this.#take?.(data);
      if (hello) this.#welcome(hello, data);
      if (ref || (said && !place.said)) this.#say(data);
    };
    this.#lock();
  }

  #end(): void {
    this.#yield();
    this.#channel?.close();
    this.#channel = undefined;
  }

  /** The leader's state is everybody's, but for its end. */
  spread(state: State, why?: HalleyError): void {
    if (state === 'closed') this.#end();
    // A page that is put aside: another one leads, until it comes back and connects.
    else if (why?.code === 'hidden') this.#yield();
    else this.#tell();
  }

  open(place: Place, listener: Listener, transport: Transport): Connection {
    if (this.#holding.signal.aborted) this.#lock();
    return this.#isLeader ? transport.open(place, listener) : this.#follow(place, listener);
  }

  /** For the tab that leads; false where that is this one. */
  handOn({ ref, data }: Operation): boolean {
    if (!this.#isLeader) this.#post({ ref, said: JSON.stringify(data) });
    return !this.#isLeader;
  }

  #say({ ref, said }: Post): void {
    this.sharer.say(JSON.parse(said!)).then(() => this.pass({ message: { ref } }),
      ({ code, message }) => this.pass({ message: { ref, error: { code, message } } }));
  }

  #post(post: Post): void {
    this.#channel?.postMessage(post);
  }

  #tell(): void {
    const { place: { subjects, said }, state } = this.sharer;
    this.pass({ state, subjects, said });
  }

  #welcome(tab: string, { subjects }: Post): void {
    this.#tell();
    this.sharer.wants(tab, subjects!).then(() => this.#tell(), () => this.#post({ alone: tab }));
    if (this.#led.has(tab)) return;
    this.#led.add(tab);
    void navigator.locks.request(tab, () => {
      this.#led.delete(tab);
      this.sharer.wants(tab, []).catch(() => {});
    });
  }

  /** Waits for the lock, or takes it. */
  #lock(steal = false): void {
    this.#yield();
    if (!this.#channel) return;
    let isGiven: boolean | undefined;
    const { locks } = navigator;
    const { signal } = this.#holding = new AbortController();
    const held = new Promise((letGo) => { signal.onabort = letGo; });
    void locks.request(this.#tab = newId(), () => held);
    locks.request(this.#channel.name, steal ? { steal } : { signal }, () => {
      isGiven = true;
      this.#become(true);
      return held;
    }).catch(() => {
      if (!isGiven) return;
      this.#become(false);
      this.#lock();
    });
  }

  #become(isLeader: boolean): void {
    this.#isLeader = isLeader;
    this.sharer.leaveAll();
    this.sharer.core.lost({ code: 'leader', atOnce: true });
  }

  /** Gives the lock to the next, or waits for it no longer. */
  #yield(): void {
    if (!this.#channel) return;
    this.#isLeader = false;
    this.#holding.abort();
  }

  /** To the other tabs, from the one that leads. */
  pass(post: Post): void {
    if (this.#isLeader) this.#post({ by: this.#tab, cursor: this.sharer.core.cursor, ...post });
  }

  #follow(place: Place, listener: Listener): Connection {
    const { subjects: own } = place;
    return connection(listener, (signal) => new Promise<Loss>((lost, failed) => {
      let held: Message[] | undefined = [];
      let leader: string | undefined;
      let cursor: string | undefined;
      let isBegun = false;
      const silent = setTimeout(() => {
        if (!document.hidden) this.#lock(true);
        lost({ code: 'no_leader' });
      }, HELLO_MS);
      signal.onabort = () => clearTimeout(silent);
      const begin = async () => {
        if (own.length || (place.cursor && place.cursor !== cursor)) {
          while (!signal.aborted && (await pollOnce(place, listener, signal, '0'))[0]);
        } else listener.message({ cursor });
        for (const message of held!) listener.message(message);
        held = undefined;
      };
      this.#take = ({ by, subjects, alone, state, message, cursor: at }) => {
        if (signal.aborted || !(by || alone)) return;
        clearTimeout(silent);
        if (alone) {
          if (alone !== this.#tab) return;
          this.#end();
          this.#isLeader = true;
          return lost({ code: 'alone', atOnce: true });
        }
        // Somebody else leads now, or this page was frozen.
        if (leader && (by !== leader || at !== cursor)) {
          return lost({ code: 'missed', atOnce: true });
        }
        leader = by;
        cursor = at;
        if (!isBegun) {
          listener.message({});
          isBegun = own.every((one) => subjects?.includes(one));
          if (isBegun) begin().catch(failed);
        }
        if (state) this.sharer.report(state);
        if (!message) return;
        cursor = message.cursor ?? cursor;
        if (held) held.push(message);
        else listener.message(message);
      };
      this.#post({ hello: this.#tab, subjects: own, said: place.said });
    }));
  }
}
