// Which subjects a connection is to have, and who waits for that. It decides and does nothing.
//
// The wanted subjects are a list for this client, as '', and for each tab that it leads. The
// connection has the subjects of its opening, and changes that were answered since. The difference
// is requested: in band; where there is no way back by another connection, once a request has shown
// that it would be allowed; or of the tab that leads, which gets the whole list.
//
// Invariants:
// - No caller gets its answer before events that are published about the subject from then on
//   arrive.
// - One question about a subject at a time. Whoever wants it while it is being ended waits for that
//   answer, and for the next.
// - An opening says only what the server has allowed: its refusal would end the client.

import { isPresence } from './http.js';
import type { HalleyError } from './types.js';

export interface Asker {
  /** This tab has a connection of its own. */
  leads(): boolean;
  /** Tells the leader what was `said` last; `confirmed` is called when it has that. */
  hello(): void;
  /** The connection can be told of subjects. */
  hasWayBack(): boolean;
  /** Subscribes or unsubscribes; gives false where only the next connection can be told. */
  askAbout(op: string, subject: string): Promise<boolean>;
  /** Another connection, from the cursor. */
  reopen(): void;
}

interface Waiting {
  tab: string;
  subjects: string[];
  /** It waits for the end of them. */
  isEnd?: boolean;
  done(): void;
  fail(error: HalleyError, subject: string): void;
}

/** Stands for the whole list while the leader hasn't answered. */
const ALL = '';

export class Subjects {
  #wanted = new Map<string, string[]>();
  /** The server has said that it would. */
  #allowed: Set<string>;
  /** What this connection has. */
  #has = new Set<string>();
  /** Of these an answer is on its way. */
  #busy = new Set<string>();
  /** Presence that is there, and is to be told from its beginning. */
  #again = new Set<string>();
  #isLive = false;
  /** With the opening, or to the leader since. */
  said: string[] = [];
  #waiting = new Set<Waiting>();

  constructor(own: string[], readonly asker: Asker) {
    this.#wanted.set('', own);
    this.#allowed = new Set(own);
  }

  #all(): string[] {
    return [...new Set([...this.#wanted.values()].flat())];
  }

  allowed(): string[] {
    return this.#all().filter((one) => this.#allowed.has(one));
  }

  /** What the next opening says, or the leader is asked with. */
  opening(): string[] {
    return this.said = this.asker.leads() ? this.allowed() : this.#all();
  }

  /** The connection has what its opening said. */
  live(): void {
    this.#isLive = true;
    this.confirmed();
  }

  /** It has what the leader was told. */
  confirmed(): void {
    this.#has = new Set(this.said);
    for (const one of this.said) this.#allowed.add(one);
    this.#busy.delete(ALL);
    this.#go();
  }

  lost(): void {
    this.#isLive = false;
    this.#has.clear();
    this.#busy.delete(ALL);
  }

  /** This client wants one, or no more; gives what takes that back where it takes too long. */
  change(
    subject: string, isWanted: boolean, done: () => void, fail: (error: HalleyError) => void,
  ): () => void {
    const own = this.#wanted.get('')!;
    const others = own.filter((one) => one !== subject);
    const had = own.length > others.length;
    this.#wanted.set('', isWanted ? [...others, subject] : others);
    if (isWanted) this.#tellAgain([subject]);
    const waiting = { tab: '', subjects: [subject], isEnd: !isWanted, done, fail };
    this.#waiting.add(waiting);
    this.#go();
    return () => {
      this.#waiting.delete(waiting);
      if (isWanted && !had) this.#drop('', subject);
      this.#go();
    };
  }

  /** A tab wants these and no others; it may say so twice. */
  want(
    tab: string, subjects: string[], done: () => void, fail: Waiting['fail'], isSame?: boolean,
  ): void {
    this.#forget(tab);
    this.#wanted.set(tab, subjects);
    if (!isSame) this.#tellAgain(subjects);
    this.#waiting.add({ tab, subjects, done, fail });
    this.#go();
  }

  /** A tab is gone. */
  leave(tab: string): void {
    this.#forget(tab);
    this.#wanted.delete(tab);
    this.#go();
  }

  /** No tab is led any more, or none yet. */
  leaveAll(): void {
    for (const tab of this.#wanted.keys()) {
      if (tab) {
        this.#forget(tab);
        this.#wanted.delete(tab);
      }
    }
  }

  /** Nothing comes any more to this client; its tabs ask the next that leads. */
  end(error: HalleyError): void {
    for (const { tab, fail, subjects: [first] } of this.#waiting) if (!tab) fail(error, first!);
    this.#waiting.clear();
  }

  /** Nobody gets it; false where this tab has it already, or began with it. */
  refuse(subject: string, error: HalleyError): boolean {
    let isAwaited = !this.#wanted.get('')!.includes(subject);
    for (const waiting of [...this.#waiting]) {
      if (waiting.isEnd || !waiting.subjects.includes(subject)) continue;
      isAwaited = true;
      this.#waiting.delete(waiting);
      this.#drop(waiting.tab, subject);
      waiting.fail(error, subject);
    }
    this.#go();
    return isAwaited;
  }

  /** The server has ended it: nobody has it until somebody asks anew. */
  ended(subject: string, error: HalleyError): void {
    this.#has.delete(subject);
    for (const tab of this.#wanted.keys()) this.#drop(tab, subject);
    this.refuse(subject, error);
  }

  #tellAgain(subjects: string[]): void {
    for (const one of subjects) if (isPresence(one) && this.#has.has(one)) this.#again.add(one);
  }

  #drop(tab: string, subject: string): void {
    this.#wanted.set(tab, (this.#wanted.get(tab) ?? []).filter((one) => one !== subject));
  }

  #forget(tab: string): void {
    for (const one of this.#waiting) if (one.tab === tab) this.#waiting.delete(one);
  }

  /** Asks for what lacks, and tells those who have what they waited for. */
  #go(): void {
    if (this.#isLive) this.#ask();
    const all = this.#all();
    for (const one of this.#allowed) {
      if (!all.includes(one) && !this.#has.has(one)) this.#allowed.delete(one);
    }
    for (const waiting of [...this.#waiting]) {
      const { subjects: [first], subjects, isEnd } = waiting;
      const isThere = (one: string) => this.#has.has(one) && !this.#again.has(one);
      const isDone = isEnd ? !isThere(first!) || all.includes(first!)
        : this.#isLive && subjects.every(isThere);
      if (!isDone || [ALL, ...subjects].some((one) => this.#busy.has(one))) continue;
      this.#waiting.delete(waiting);
      waiting.done();
    }
  }

  #ask(): void {
    const { asker } = this;
    const all = this.#all();
    if (!asker.leads()) {
      if (JSON.stringify(this.said) === JSON.stringify(all) && !this.#again.size) return;
      this.#again.clear();
      this.#busy.add(ALL);
      this.said = all;
      return asker.hello();
    }
    const hasWayBack = asker.hasWayBack();
    // What is there can't be told once more by another connection: the next change is.
    if (!hasWayBack) this.#again.clear();
    const lacking = all.filter((one) => !this.#has.has(one) || this.#again.has(one));
    const over = [...this.#has].filter((one) => !all.includes(one));
    if (hasWayBack) {
      for (const one of lacking) this.#say('subscribe', one);
      for (const one of over) this.#say('unsubscribe', one);
      return;
    }
    // One after the other, each beside all that was allowed before.
    if (this.#busy.size) return;
    const asked = lacking.find((one) => !this.#allowed.has(one));
    if (asked !== undefined) this.#say('subscribe', asked);
    else if (over.length || lacking.length) asker.reopen();
  }

  async #say(op: string, one: string): Promise<void> {
    if (this.#busy.has(one)) return;
    this.#busy.add(one);
    this.#again.delete(one);
    let error: HalleyError | undefined;
    try {
      const isThere = await this.asker.askAbout(op, one);
      if (op === 'subscribe') this.#allowed.add(one);
      if (isThere) this.#has[op === 'subscribe' ? 'add' : 'delete'](one);
    } catch (why) {
      error = why as HalleyError;
    }
    this.#busy.delete(one);
    if (!error) return this.#go();
    if (op === 'subscribe') return this.ended(one, error);
    this.#has.delete(one);
    this.refuse(one, error);
  }
}
