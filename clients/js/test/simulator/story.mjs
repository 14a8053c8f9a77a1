// One story of the simulator, by its seed: tabs of a user come and go, want subjects and want them
// no longer, while the network, the server and the browser do their worst; then all is calm. These
// must be true of what the tabs showed:
//
// - Each event that a tab is owed is shown once, in its subject's order, or told as a gap. It is
//   owed what is published about its user, and about subjects that it began with, from when it says
//   `open`; about others from when `subscribe` or `follow` resolves. Earlier events may come as
//   well, and then also late.
// - Nothing is shown twice.
// - Each promise is kept: it resolves when what it says is true, is refused only for a reason, and
//   settles. Once all is calm, everything is possible at once.
// - At the end all tabs have one session, and it has what they want and no more.

import { Browser } from './browser.mjs';
import { Clock, chanceOf } from './clock.mjs';
import { Network } from './network.mjs';
import { Server, USER } from './server.mjs';

const ACT_MS = 25_000;
const CALM_MS = 110_000;
const SLOW_MS = 400_000;
/** Longer than a poll that is read slowly. */
const SILENCE_MS = 33_000;
/** Until a client finds that out, and is back. */
const SILENT_MS = SILENCE_MS + 15_000;
/** The longest that it waits by itself. */
const BACKOFF_MS = 45_000;
const SUBJECTS = ['a', 'b', 'c', 'a', 'b', 'no'];
const PASSING = new Set(['timeout', 'unreachable', 'closed', 'http']);

/** A page that has a client, and remembers what it was told and promised. */
class Page {
  shown = [];
  gaps = [];
  states = [];
  /** By subject: whether it wants it, and from when to when it is owed its events. */
  wants = new Map();
  owed = [];
  faults = [];
  /** Subjects of which nobody can know whether it has them. */
  unknown = new Set();
  pending = 0;
  isOver = false;

  constructor(story, options) {
    this.story = story;
    this.tab = story.browser.open();
    const { subjects = [] } = options;
    this.tab.run(() => {
      const { connect, WebSocket } = story;
      this.halley = connect('https://halley', {
        user: USER, silenceMs: SILENCE_MS, WebSocket, ...options,
      });
      this.halley.onItem((item) => {
        if (item.gap) this.gaps.push(item.gap);
        else this.shown.push({ ...item, on: story.clock.now });
      });
      this.halley.onState((state, why) => this.#state(state, why, subjects));
    });
    for (const subject of subjects) this.wants.set(subject, true);
  }

  #state(state, why, subjects) {
    this.states.push(`${Math.round(this.story.clock.now)} ${state} ${why?.code ?? ''}`);
    if (state === 'closed' && !this.isOver) this.faults.push(`closed by ${why?.code}`);
    if (state !== 'open' || this.isOpened) return;
    this.isOpened = true;
    this.#owe(USER);
    for (const one of subjects) if (this.wants.get(one) === true) this.#owe(one);
  }

  #owe(subject) {
    if (this.#owing(subject)) return;
    this.owed.push({ subject, from: this.story.clock.now, to: Infinity });
  }

  #owing(subject) {
    return this.owed.find((one) => one.subject === subject && one.to === Infinity);
  }

  /** Does something as soon as the tab runs. */
  act(does) {
    this.tab.later(0, () => this.isOver || does());
  }

  /** `op` of a subject; `then` when it is done. */
  #promised(op, subject, then) {
    const { clock } = this.story;
    const called = clock.now;
    this.pending += 1;
    this.story.note(`${this.tab.name} ${op} ${subject}`);
    this.halley[op](subject).then(() => {
      this.story.note(`${this.tab.name} ${op} ${subject}: done`);
      if (subject === 'no' && op === 'subscribe') this.faults.push('what is refused was done');
      then(true);
    }, ({ code, stack }) => {
      this.story.note(`${this.tab.name} ${op} ${subject}: ${code}`);
      if (code !== (subject === 'no' && 'right_missing') && code !== 'too_many_subscriptions') {
        if (!PASSING.has(code)) this.faults.push(`${op} ${subject}: ${code ?? stack}`);
        else if (this.story.isCalmSince(called) && !this.#isReading()) {
          this.faults.push(`${op}: ${code}, in calm`);
        }
        this.unknown.add(subject);
      }
      then(false);
    }).then(() => { this.pending -= 1; });
  }

  /** A server that gives up on what it reads brings a page back in minutes. */
  #isReading() {
    const { setting: { replayMs }, server: { log } } = this.story;
    return replayMs > 1_000 && this.lost(log).length > 0;
  }

  subscribe(subject) {
    const mark = this.wants.get(subject) || { subject };
    this.wants.set(subject, mark);
    this.#promised('subscribe', subject, (isDone) => {
      if (this.wants.get(subject) !== mark || this.isOver) return;
      if (isDone) this.#owe(subject);
      else if (!this.#owing(subject)) this.wants.delete(subject);
    });
  }

  unsubscribe(subject) {
    this.wants.delete(subject);
    const owing = this.#owing(subject);
    if (owing) owing.to = this.story.clock.now;
    this.#promised('unsubscribe', subject, () => {});
  }

  follow(subject) {
    this.#promised('follow', subject, (isDone) => isDone && this.#owe(subject));
  }

  close() {
    this.isOver = true;
    this.tab.later(0, () => this.halley.close());
  }

  end(hasWord) {
    this.isOver = true;
    this.tab.end(hasWord);
    this.story.network.forget(this.tab);
  }

  /** What it is owed, and has neither shown nor told. */
  lost(log) {
    const ids = new Set(this.shown.map(({ id }) => id));
    return log.filter(({ event, at }) => this.owed.some(({ subject, from, to }) =>
      subject === event.subject && at > from && to === Infinity)
      && !ids.has(event.id)
      && !this.gaps.some(({ from, to }) => event.at >= from && event.at <= to))
      .map(({ event }) => event);
  }

  /** What is wrong with what it showed. */
  verdict(log) {
    const { faults, shown } = this;
    const times = new Map();
    const last = new Map();
    for (const { id, subject, data } of shown) {
      const { at } = log[data];
      times.set(id, (times.get(id) ?? 0) + 1);
      if (times.get(id) === 2) faults.push(`${id} (${subject}) twice`);
      const isOwed = ({ subject: one, from, to }) => one === subject && at > from && at < to;
      if (!this.owed.some(isOwed)) continue;
      if (data < last.get(subject)) faults.push(`${id} (${subject}) behind ${last.get(subject)}`);
      last.set(subject, Math.max(data, last.get(subject) ?? -1));
    }
    if (this.isOver) return faults;
    faults.push(...this.lost(log).map(({ id, subject }) => `${id} (${subject}) lost`));
    if (this.pending) faults.push(`${this.pending} promises never settle`);
    if (!this.isOpened) faults.push('never open');
    else if (this.halley.state !== 'open') faults.push(`${this.halley.state} at the end`);
    return faults;
  }
}

export class Story {
  pages = [];
  notes = [];
  #calmFrom = 0;

  /** `world` is what the client sees: see `code.mjs`. */
  constructor(seed, { connect, WebSocket, world, lies = {}, saysMore = true }) {
    const chance = chanceOf(seed);
    const clock = new Clock();
    const { pick } = chance;
    const latencyMs = pick([0, 30, 120, 500]);
    const channelMs = pick([0, 5, 50, 500]);
    const lockMs = pick([0, 5, 200]);
    const losesAnswers = pick([0, 0, 0.1]);
    this.setting = {
      latencyMs, channelMs, lockMs, losesAnswers,
      slowMs: pick([0, 50, 300, 1_000]), replayMs: pick([0, 100, 1_500, 4_000]),
      batch: pick([2, 5, 20]), most: chance.is(0.1) ? 3 : 100,
      transports: pick([['websocket'], ['websocket'], ['sse'], ['ndjson'], ['poll'],
        ['websocket', 'sse', 'ndjson', 'poll']]),
      share: !chance.is(0.1), locks: !chance.is(0.05), forgets: chance.is(0.1),
    };
    const { share, locks } = this.setting;
    const browser = new Browser(clock, chance, { channelMs, lockMs, losesAnswers, locks });
    const server = new Server(clock, chance, { ...this.setting, lies, saysMore });
    const network = new Network(clock, chance, server, latencyMs);
    Object.assign(world, { clock, chance, browser, network, server, setMs: 0 });
    this.world = world;
    Object.assign(this, { seed, clock, chance, browser, server, network, connect, WebSocket });
    this.isShared = share && locks;
  }

  note(text) {
    this.notes.push(`${Math.round(this.clock.now)} ${text}`);
  }

  /** What is asked from then on has no excuse. */
  isCalmSince(time) {
    return time >= this.#calmFrom;
  }

  /** So long everybody needs at most to get over it. */
  #trouble(text, ms = 10_000) {
    this.note(text);
    this.#calmFrom = Math.max(this.#calmFrom, this.clock.now + ms);
  }

  #open() {
    const { chance, setting: { transports, share } } = this;
    const subjects = chance.is(0.4) ? [chance.pick(['a', 'b', 'c'])] : [];
    this.note(`t${this.pages.length} opens ${subjects}`);
    this.pages.push(new Page(this, { transports, share, subjects }));
  }

  #publish(subject) {
    const { event } = this.server.publish(subject);
    this.note(`${event.id} about ${subject}`);
  }

  /** One of the pages that there are. */
  #page() {
    return this.chance.pick(this.pages.filter((one) => !one.isOver));
  }

  #acts = {
    publish: () => this.#publish(this.chance.pick([USER, 'a', 'b', 'c', 'f'])),
    burst: () => {
      const subject = this.chance.pick([USER, 'a', 'b']);
      for (let n = 0; n < 12; n += 1) this.#publish(subject);
    },
    open: () => this.pages.length < 5 && this.#open(),
    subscribe: (page) => page.act(() => page.subscribe(this.chance.pick(SUBJECTS))),
    unsubscribe: (page) => page.act(() => page.unsubscribe(this.chance.pick(SUBJECTS))),
    again: (page) => page.act(() => {
      const subject = this.chance.pick(SUBJECTS);
      page.unsubscribe(subject);
      page.subscribe(subject);
    }),
    thenNot: (page) => page.act(() => {
      const subject = this.chance.pick(SUBJECTS);
      page.subscribe(subject);
      page.unsubscribe(subject);
    }),
    follow: (page) => page.act(() => page.follow('f')),
    say: (page) => page.act(() => {
      const id = `p${this.notes.length}`;
      page.pending += 1;
      page.halley.publish('a', 1, { id }).then(
        () => this.server.log.some(({ key }) => key === id)
          || page.faults.push(`${id} wasn't published`),
        ({ code }) => PASSING.has(code) || page.faults.push(`publish: ${code}`),
      ).then(() => { page.pending -= 1; });
    }),
    handOver: (page) => {
      // One goes as another one wants what it had.
      const subject = this.chance.pick(['a', 'b', 'c']);
      const others = this.pages.filter((one) => !one.isOver && one !== page);
      if (!others.length) return;
      this.#ends(page, true);
      this.clock.after(this.chance.below(300), () => {
        const other = this.chance.pick(others);
        other.act(() => other.subscribe(subject));
      });
    },
    close: (page) => this.#ends(page, true),
    crash: (page) => this.#ends(page, false),
    leave: (page) => {
      if (this.pages.filter((one) => !one.isOver).length < 2) return;
      this.#trouble(`${page.tab.name} closes its client`);
      page.close();
    },
    freeze: (page) => {
      this.#trouble(`${page.tab.name} is frozen`);
      page.tab.freeze();
      this.#later(20_000, () => {
        this.#trouble(`${page.tab.name} wakes`);
        page.tab.thaw();
      });
    },
    hide: (page) => {
      page.tab.show(false);
      this.#later(10_000, () => page.isOver || page.tab.show(true));
    },
    cut: () => {
      this.#trouble('all connections are cut');
      this.network.cutAll();
    },
    stall: () => {
      const wires = [...this.network.wires];
      if (!wires.length) return;
      this.#trouble('a connection falls silent', SILENT_MS);
      this.chance.pick(wires).isStalled = true;
    },
    setBack: () => {
      this.note('the clock is set back');
      this.world.setMs -= 3_600_000;
    },
    restart: () => this.#away(this.chance.pick([500, 5_000, 20_000])),
    repeat: () => this.server.repeat(1 + this.chance.below(5)),
    forget: () => this.setting.forgets && this.server.forget(this.server.log.length - 3),
    offline: () => {
      if (this.network.isOffline) return;
      this.#trouble('offline');
      this.network.isOffline = true;
      this.network.cutAll();
      const tell = (type) => this.pages.forEach(({ tab, isOver }) =>
        isOver || tab.later(0, () => tab.window.tell(type)));
      tell('offline');
      this.#later(10_000, () => {
        this.#trouble('online', BACKOFF_MS);
        this.network.isOffline = false;
        tell('online');
      });
    },
  };

  #weights = {
    publish: 12, burst: 1, open: 3, subscribe: 5, unsubscribe: 2, again: 2, thenNot: 1, follow: 1,
    say: 2, handOver: 1, close: 1, crash: 1, leave: 0.5, freeze: 1, hide: 1, cut: 1.5, stall: 1,
    restart: 1, setBack: 0.5, repeat: 1, forget: 1, offline: 0.7,
  };

  #ends(page, hasWord) {
    if (this.pages.filter((one) => !one.isOver).length < 2) return;
    this.#trouble(`${page.tab.name} ${hasWord ? 'is closed' : 'crashes'}`);
    page.end(hasWord);
  }

  #away(ms) {
    if (!this.server.isUp) return;
    this.#trouble(`the server is away for ${ms} ms`);
    this.server.down();
    this.network.cutAll();
    this.clock.after(ms, () => {
      this.#trouble('the server is back', BACKOFF_MS);
      this.server.up();
    });
  }

  #later(most, act) {
    this.clock.after(Math.min(this.chance.next() * most, ACT_MS + 5_000 - this.clock.now), act);
  }

  /** Some of what may happen is what this story is about. */
  #act() {
    const names = Object.keys(this.#acts);
    const weights = names.map((name) => this.#weights[name]
      * (name === 'publish' || this.about.includes(name) ? 1 : 0.1));
    let left = this.chance.next() * weights.reduce((a, b) => a + b);
    const name = names.find((_, place) => (left -= weights[place]) < 0);
    this.#acts[name](this.#page());
  }

  /** Gives what is wrong, each as a line. */
  run() {
    const { chance, clock } = this;
    this.about = Object.keys(this.#acts).filter(() => chance.is(0.4));
    const count = 1 + chance.below(3);
    this.#open();
    for (let n = 1; n < count; n += 1) clock.after(chance.below(4_000), () => this.#open());
    const acts = 8 + chance.below(30);
    for (let n = 0; n < acts; n += 1) clock.after(chance.below(ACT_MS), () => this.#act());
    clock.runUntil(ACT_MS + 5_100);
    const end = ACT_MS + 5_100;
    this.note('all is calm');
    const alive = () => this.pages.filter((one) => !one.isOver);
    const [late] = alive();
    clock.after(75_000, () => late.act(() => late.subscribe('late')));
    const all = [USER, 'a', 'b', 'c', 'f', 'late'];
    for (const ms of [60_000, 90_000, 100_000]) {
      all.forEach((subject, place) => clock.after(ms + 100 * place, () => this.#publish(subject)));
    }
    clock.runUntil(end + CALM_MS);
    // What is read very slowly takes its time.
    if (alive().some((page) => page.lost(this.server.log).length)) clock.runUntil(end + SLOW_MS);
    const faults = this.pages.flatMap((page) => page.verdict(this.server.log)
      .map((fault) => `${page.tab.name}: ${fault}`));
    if (this.isShared) faults.push(...this.#sessions(alive()));
    for (const { tab } of this.pages) tab.end(false);
    return [...faults, ...this.browser.thrown];
  }

  /** All tabs have one between them, with what they want. */
  #sessions(alive) {
    const { most, transports } = this.setting;
    const { server: { sessions }, network: { wires } } = this;
    if (most < 100 || transports[0] === 'poll') return [];
    // The server doesn't know yet that its end is gone.
    if ([...wires].some(({ isStalled }) => isStalled)) return [];
    if (sessions.size !== 1) return [`${sessions.size} sessions`];
    const [{ subjects }] = sessions;
    const wanted = new Set(alive.flatMap((page) => [...page.wants.keys()]));
    const unknown = new Set(this.pages.flatMap((page) => [...page.unknown]));
    return [...new Set([...wanted, ...subjects])]
      .filter((one) => wanted.has(one) !== subjects.has(one) && !unknown.has(one))
      .map((one) => `${one} is ${wanted.has(one) ? 'not subscribed' : 'left behind'}`);
  }
}
