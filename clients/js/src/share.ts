// One connection for all tabs of a browser that have the same server and user.
//
// The tab that holds a lock of the Web Locks API leads: it has the connection, and posts what comes
// to a BroadcastChannel, message by message. To the others that channel is a transport like any
// other: each has a core of its own, which knows its cursor and shows nothing twice. So whoever is
// given the lock next, as the leader was closed, killed or put aside, goes on from its own cursor.
//
// The channel's posts: `hello` asks for the leader, and tells it which subjects a tab wants, and in
// which turn. The leader answers at once with its state and cursor, and confirms that turn when its
// connection has those subjects, or says which of them is refused; asked again, it answers again.
// Each message comes with the cursor that the leader had before it.
//
// The user's own state goes to the leader, by `say`: it sets that as its own, passes the answer on
// as a message, and tells all tabs the state since. So the next leader sets it again. In `hello` it
// is for a leader that knows of none: a state from before a tab slept may be over.
//
// Invariants:
// - A tab is open when the leader has confirmed its subjects. Events from the channel are held from
//   the leader's first word on. A tab without a cursor goes on from the leader's at that moment;
//   one that has another than the leader's first, or subjects of its own, reads the events between
//   from the server by polls, until an answer is whole, and then shows the held ones.
// - Each tab holds a lock of its own before it says a word. When it goes, however it does, its
//   leader is given that lock, and wants its subjects no longer.
// - A tab whose subjects the leader can't have goes on alone, and so does one that may have no lock
//   or no channel. That a leader has no connection is no reason to.
// - A leader that doesn't answer while another tab is visible loses the lock to that.

import type { Core } from './core.js';
import { connection, limited } from './http.js';
import { newId, type Operation } from './doing.js';
import { claims } from './token.js';
import { pollOnce } from './transports/poll.js';
import type { Subjects } from './subjects.js';
import {
  HalleyError, type Ask, type Connection, type Listener, type Loss, type Message, type Place,
  type State, type Transport,
} from './types.js';

interface Post {
  /** Which tab says it. */
  hello?: string;
  by?: string;
  /** In which order tabs have led: what one says that led before another is over. */
  since?: number;
  /** The tab whose turn it is about. */
  to?: string;
  turn?: number;
  /** All that the tab wants. */
  subjects?: string[];
  /** Which of them is refused, and why. */
  no?: string;
  error?: Loss;
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
  readonly subjects: Subjects;
  say(data: unknown): Promise<void>;
  report(state: State): void;
  getToken(isAgain: boolean): ReturnType<Ask>;
}

/** How often a tab that is looked at looks whether the leader is there, and asks a silent one. */
const LOOK_MS = 250;
/** A leader is put aside after so many more: it has a second to answer. */
const LOOKS_MAX = 4;
/** Messages that wait while a tab asks the server. */
const HELD_MAX = 10_000;

export class Share {
  isLeader: boolean | undefined;
  #channel: BroadcastChannel | undefined;
  /** Of the leader, this tab or another: see `Post`. */
  #since = 0;
  #tab!: string;
  /** It holds its own lock: the leader, which waits for that, could be given it before. */
  #named!: Promise<void>;
  /** Whose tabs these are. */
  #user: string | undefined;
  /** Of the tab's `hello`s; the answer to the last one counts. */
  #turn = 0;
  /** The tabs whose locks are waited for, and the last turn of each. */
  #led = new Map<string, number>();
  /** Its end lets go of the locks. */
  #holding = new AbortController();
  /** What a tab that doesn't lead does with a post. */
  #take: ((post: Post) => void) | undefined;

  constructor(readonly sharer: Sharer) {}

  /** Nothing is shared where it isn't known who this is. */
  async start(): Promise<void> {
    const token = await this.sharer.getToken(false).catch(() => {});
    if (this.sharer.state !== 'closed') this.#join(this.#userOf(token as string));
  }

  #userOf(token = ''): string | undefined {
    return this.sharer.place.user ?? claims(token).sub;
  }

  #join(user: string | undefined): void {
    const { place } = this.sharer;
    this.#user = user;
    this.isLeader = !user;
    if (!user) return;
    try {
      this.#channel = new BroadcastChannel(`${place.base} ${user}`);
    } catch {
      return this.#beAlone();
    }
    this.#channel.onmessage = ({ data }: { data: Post }) => {
      const { by, hello, ref, said } = data;
      if (by && said) place.said = said;
      if (!this.isLeader) return this.#take?.(data);
      if (hello) this.#welcome(hello, data);
      if (ref || (said && !place.said)) this.#say(data);
    };
    this.#lock();
  }

  #beAlone(): void {
    this.#end();
    this.isLeader = true;
    this.sharer.core.lost({ code: 'alone', atOnce: true });
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

  /** With the token of another user it leaves the tabs of the one before. */
  open(place: Place, listener: Listener, transport: Transport): Connection {
    const user = this.#userOf(place.token ?? '');
    if (user !== this.#user) {
      this.#end();
      this.#since = 0;
      place.said = this.sharer.place.said = undefined;
      this.#join(user);
    }
    if (this.#holding.signal.aborted) this.#lock();
    return this.isLeader ? transport.open(place, listener) : this.#follow(place, listener);
  }

  /** For the tab that leads; false where that is this one. */
  handOn({ ref, data }: Operation): boolean {
    if (!this.isLeader) this.#post({ ref, said: JSON.stringify(data) });
    return !this.isLeader;
  }

  #say({ ref, said }: Post): void {
    this.sharer.say(JSON.parse(said!)).then(() => this.pass({ message: { ref } }),
      ({ code, message }) => this.pass({ message: { ref, error: { code, message } } }));
  }

  #post(post: Post): void {
    this.#channel?.postMessage(post);
  }

  #tell(): void {
    const { place: { said }, state } = this.sharer;
    this.pass({ state, said });
  }

  #welcome(to: string, { subjects: all, turn }: Post): void {
    const { subjects } = this.sharer;
    this.#tell();
    // A tab with an older client may only look whether anybody leads.
    if (!all) return;
    const last = this.#led.get(to);
    this.#led.set(to, turn!);
    subjects.want(to, all, () => this.pass({ to, turn }),
      ({ code, message, status }, no) =>
        this.pass({ to, turn, no, error: { code, message, status } }), turn === last);
    if (last) return;
    this.#request(to, {}, () => {
      this.#led.delete(to);
      subjects.leave(to);
    }).catch(() => {});
  }

  /** Some browsers refuse by an exception, some by a rejection. */
  async #request(name: string, options: LockOptions, act: () => unknown): Promise<void> {
    await navigator.locks.request(name, options, act);
  }

  /** Waits for the lock, or takes it. */
  #lock(steal = false): void {
    this.#yield();
    if (!this.#channel) return;
    const { signal } = this.#holding = new AbortController();
    const held = new Promise((letGo) => { signal.onabort = letGo; });
    this.#named = new Promise((named) => {
      this.#request(this.#tab = newId(), {}, () => (named(), held)).catch(() => {});
    });
    this.#request(this.#channel.name, steal ? { steal } : { signal }, () => {
      if (!signal.aborted) this.#become(true);
      return held;
    }).catch(({ name }) => {
      if (signal.aborted) return;
      // Another one has taken it.
      if (name === 'AbortError') {
        if (this.isLeader) this.#become(false);
        this.#lock();
      } else this.#beAlone();
    });
  }

  #become(isLeader: boolean): void {
    this.isLeader = isLeader;
    if (isLeader) this.#since = Math.max(Date.now(), this.#since + 1);
    for (const tab of this.#led.keys()) this.#led.set(tab, -1);
    this.sharer.subjects.leaveAll();
    this.sharer.core.lost({ code: 'leader', atOnce: true });
  }

  /** Gives the lock to the next, or waits for it no longer. */
  #yield(): void {
    if (!this.#channel) return;
    this.isLeader = false;
    this.#holding.abort();
  }

  /** To the other tabs, from the one that leads. */
  pass(post: Post): void {
    if (!this.isLeader) return;
    this.#post({ by: this.#tab, since: this.#since, cursor: this.sharer.core.cursor, ...post });
  }

  #follow(place: Place, listener: Listener): Connection {
    const { sharer } = this;
    const hello = () => {
      const { said: subjects } = sharer.subjects;
      const post = { hello: this.#tab, subjects, turn: this.#turn, said: place.said };
      this.#named.then(() => this.#post(post));
    };
    const want = () => {
      this.#turn += 1;
      hello();
    };
    const made = connection(listener, (signal) => new Promise<Loss>((lost, failed) => {
      let held: Message[] | undefined = [];
      let [isBegun, looks] = [false, 0];
      let leader: string | undefined;
      /** Where the leader is, and was at its first word. */
      let cursor: string | undefined;
      let first: string | undefined;
      let state: State | undefined;
      /** The turn that was confirmed while messages were held. */
      let late: number | undefined;
      let timer: ReturnType<typeof setTimeout>;
      const look = () => {
        timer = setTimeout(look, LOOK_MS);
        looks = document.hidden ? 0 : looks + 1;
        if (looks > LOOKS_MAX) {
          this.#lock(true);
          lost({ code: 'no_leader', atOnce: true });
        // Whoever leads now may not have led yet when it was told.
        } else if (!isBegun || looks) hello();
      };
      signal.onabort = () => clearTimeout(timer);
      const show = (message: Message) => {
        // That the leader's stream ends concerns the leader.
        listener.message({ ...message, end: undefined });
        listener.hold();
      };
      const begin = async () => {
        const isNew = !place.cursor;
        if (isNew) held = [];
        const [own] = place.subjects;
        if (isNew ? own && place.last : own || place.cursor !== first) {
          for (let more = true; more;) {
            const answered = limited(() => lost({ code: 'silent', atOnce: true }));
            const answer = await pollOnce(place, listener, signal, '0').finally(answered);
            ({ more } = answer);
            // What was told to be missing doesn't come behind what is newer.
            const until = answer.gap?.to;
            if (until) held = held!.filter(({ at = Infinity }) => at > until);
          }
        } else listener.message(isNew ? { cursor } : {});
        // The core has another connection.
        if (signal.aborted) return;
        held!.forEach(show);
        held = undefined;
        listener.hold();
        if (late === this.#turn) sharer.subjects.confirmed();
        if (state) this.#report(state);
      };
      const answered = ({ no, error }: Post) => {
        if (no === undefined) {
          // What a poll doesn't ask for, but steps over, has only been held.
          if (held) late = this.#turn;
          if (isBegun) return held ? undefined : sharer.subjects.confirmed();
          isBegun = true;
          begin().catch(failed);
        } else if (error!.code === 'too_many_subscriptions'
          || !sharer.subjects.refuse(no, new HalleyError(error!))) this.#beAlone();
        else if (!isBegun) open();
      };
      this.#take = (post) => {
        const { by, since, message } = post;
        if (!by || signal.aborted || since! < this.#since) return;
        this.#since = since!;
        if (!leader) first = cursor = post.cursor;
        leader ??= by;
        // Somebody else leads now, or this page was frozen.
        if (by !== leader || post.cursor !== cursor || held?.length === HELD_MAX) {
          return lost({ code: 'missed', atOnce: true });
        }
        cursor = message?.cursor || cursor;
        state = post.state ?? state;
        looks = 0;
        listener.hold();
        if (message) (held ? (one: Message) => held!.push(one) : show)(message);
        if (post.to === this.#tab && post.turn === this.#turn) answered(post);
        if (post.state && !held) this.#report(post.state);
      };
      const open = () => {
        place.subjects = sharer.subjects.opening();
        want();
      };
      open();
      timer = setTimeout(look, LOOK_MS);
    }));
    made.hello = want;
    return made;
  }

  /** The leader's state is that of a tab that has all. */
  #report(state: State): void {
    if (state !== this.sharer.state) this.sharer.report(state);
  }
}
