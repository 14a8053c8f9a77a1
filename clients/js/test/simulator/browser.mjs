// A browser of the simulator: its tabs, with timers, locks, channels and what a page knows of
// itself. The client finds them under the names that it knows (`code.mjs`), and each call of it
// belongs to the tab that runs: there is one at a time, and what it left to do is done before the
// next one's turn.

import { setFlagsFromString } from 'node:v8';

setFlagsFromString('--allow-natives-syntax');
/** Runs the promises that wait. */
const settle = new Function('%PerformMicrotaskCheckpoint()');

const refused = () => new DOMException('Access is denied', 'SecurityError');
const aborted = () => new DOMException('It was aborted', 'AbortError');

/** What the client takes for a browser: that of `world`, and the tab that runs in it. */
export function globals(world) {
  const tab = () => world.browser.current;
  let names = 0;
  const { random: _, ...rest } = Object.getOwnPropertyDescriptors(Math);
  const document = {
    get hidden() { return tab().document.hidden; },
    addEventListener: (...all) => tab().document.addEventListener(...all),
  };
  const navigator = { get locks() { return tab().navigator.locks; } };
  return {
    globalThis: { document, navigator },
    document,
    navigator,
    window: { addEventListener: (...all) => tab().window.addEventListener(...all) },
    queueMicrotask: (run) => Promise.resolve().then(run),
    setTimeout: (run, ms = 0) => tab().setTimeout(run, ms),
    clearTimeout: (timer) => world.clock.stop(timer),
    // Nothing has begun while the client is loaded.
    Date: { now: () => Math.floor(1e12 + (world.clock?.now ?? 0) + (world.setMs ?? 0)) },
    performance: { now: () => world.clock?.now ?? 0 },
    Math: Object.defineProperties({}, { ...rest, random: { value: () => world.chance.next() } }),
    crypto: { getRandomValues: (array) => array.map(() => names += 1) },
    BroadcastChannel: class {
      constructor(name) { return new Channel(world.browser, tab(), name); }
    },
  };
}

export class Browser {
  tabs = [];
  /** What nobody caught. */
  thrown = [];
  /** The tab that runs. */
  current;
  #locks = new Map();
  #channels = new Map();

  /**
   * `channelMs` is the longest that a post takes, `lockMs` that a request for a lock takes until it
   * waits: in Chromium a page asks first whether it may. `losesAnswers` is the share of what the
   * leader answers to one tab that never comes. Locks and channels may be refused.
   */
  constructor(clock, chance, {
    channelMs = 5, lockMs = 0, losesAnswers = 0, locks = true, channels = true,
  } = {}) {
    Object.assign(this, {
      clock, chance, channelMs, lockMs, losesAnswers, locks, hasChannels: channels,
    });
  }

  open() {
    const tab = new Tab(this, `t${this.tabs.length}`);
    this.tabs.push(tab);
    return tab;
  }

  request(tab, name, options, callback) {
    if (!this.locks) return Promise.reject(refused());
    return new Promise((done, fail) => {
      const one = { tab, callback, done, fail };
      const queue = this.#queueOf(name);
      one.leave = () => {
        const place = queue.indexOf(one);
        if (place < 0) return;
        queue.splice(place, 1);
        if (!place) this.#grant(queue);
      };
      options.signal?.addEventListener('abort', () => {
        if (one.isHeld) return;
        one.isOver = true;
        one.leave();
        fail(aborted());
      });
      // Requests of one tab keep their order.
      const ms = tab.lockMs ?? this.lockMs * this.chance.next();
      tab.askedAt = Math.max(this.clock.now + ms, tab.askedAt);
      this.clock.after(tab.askedAt - this.clock.now, () => {
        if (!tab.isGone && !one.isOver) this.#enter(queue, one, options.steal);
      });
    });
  }

  #enter(queue, one, steals) {
    if (steals) {
      const [holder] = queue;
      if (holder?.isHeld) {
        queue.shift();
        holder.tab.later(this.#soon(), () => holder.fail(aborted()));
      }
      queue.unshift(one);
    } else queue.push(one);
    this.#grant(queue);
  }

  #queueOf(name) {
    if (!this.#locks.has(name)) this.#locks.set(name, []);
    return this.#locks.get(name);
  }

  #soon() {
    return 2 * this.chance.next();
  }

  #grant([first]) {
    if (!first || first.isHeld) return;
    first.isHeld = true;
    first.tab.later(this.#soon(), () => {
      Promise.resolve(first.callback()).then((value) => {
        first.leave();
        first.done(value);
      });
    });
  }

  channels(name) {
    if (!this.#channels.has(name)) this.#channels.set(name, []);
    return this.#channels.get(name);
  }

  /** A tab is gone: nobody waits for it, and what it held is free. */
  forget(tab) {
    for (const queue of this.#locks.values()) {
      for (const one of queue.filter((each) => each.tab === tab)) one.leave();
    }
    for (const [name, all] of this.#channels) {
      this.#channels.set(name, all.filter((one) => one.tab !== tab));
    }
  }
}

/** Posts of one to another keep their order. */
class Channel {
  #arrivals = new Map();

  constructor(browser, tab, name) {
    if (!browser.hasChannels) throw refused();
    Object.assign(this, { browser, tab, name });
    browser.channels(name).push(this);
  }

  postMessage(data) {
    const { browser: { clock, chance, channelMs, losesAnswers }, name } = this;
    const text = JSON.stringify(data);
    for (const other of this.browser.channels(name)) {
      if (other === this || (data.to && chance.is(losesAnswers))) continue;
      const at = Math.max(clock.now + channelMs * chance.next(), this.#arrivals.get(other) ?? 0);
      this.#arrivals.set(other, at);
      other.tab.later(at - clock.now, () =>
        !other.isClosed && other.onmessage?.({ data: JSON.parse(text) }));
    }
  }

  close() {
    this.isClosed = true;
    const all = this.browser.channels(this.name);
    all.splice(all.indexOf(this), 1);
  }
}

/** Who listens; each is told in the tab's turn. */
class Target {
  #all = [];

  addEventListener(type, act, { signal } = {}) {
    this.#all.push({ type, act, signal });
  }

  tell(type) {
    for (const { type: one, act, signal } of this.#all) {
      if (one === type && !signal?.aborted) act();
    }
  }
}

export class Tab {
  document = Object.assign(new Target(), { hidden: false });
  window = new Target();
  isGone = false;
  /** When its last request for a lock waits. */
  askedAt = 0;
  #frozen;

  constructor(browser, name) {
    Object.assign(this, { browser, name });
    const request = (lock, options, callback = options) =>
      browser.request(this, lock, callback === options ? {} : options, callback);
    this.navigator = { locks: { request } };
  }

  /** What comes to the tab, then; where it is frozen, as soon as it isn't. */
  later(ms, run) {
    return this.browser.clock.after(ms, () => this.#frozen?.push(run) ?? this.run(run));
  }

  setTimeout(run, ms) {
    const timer = this.browser.clock.after(ms, () => {
      if (!this.#frozen) return this.run(run);
      // Stopped while it waits here, it doesn't run either.
      timer.run = () => {};
      this.#frozen.push(() => timer.run && run());
    });
    return timer;
  }

  run(act) {
    if (this.isGone) return;
    this.browser.current = this;
    try {
      act();
    } catch (error) {
      this.browser.thrown.push(`${this.name} throws: ${error.stack}`);
    }
    settle();
    this.browser.current = undefined;
  }

  freeze() {
    this.#frozen ??= [];
  }

  thaw() {
    const waiting = this.#frozen ?? [];
    this.#frozen = undefined;
    for (const act of waiting) this.run(act);
    this.run(() => this.document.tell('resume'));
  }

  show(isShown) {
    this.run(() => {
      this.document.hidden = !isShown;
      this.document.tell('visibilitychange');
    });
  }

  /** As a user closes it; without a word, as it crashes. */
  end(hasWord = true) {
    if (hasWord && !this.#frozen) this.run(() => this.window.tell('pagehide'));
    this.isGone = true;
    this.browser.forget(this);
  }
}
