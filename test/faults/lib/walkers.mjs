// Readers that walk through the past while the faults go on: page by page back to the end, each
// requested until it is answered, and on from the first page's cursor to the newest event. past.mjs
// judges.

import { Agent } from 'node:http';
import { sleep } from '../../lib/wait.mjs';
import { asked } from './asked.mjs';

const WALKERS = 2;
const REST_MS = [50, 600];
const ATTEMPT_MS_MAX = 10_000;
/** Of a page: one event at a time is slow, and cuts everywhere. */
const LIMITS = [1, 3, 7, 20, 100];
const REFUSED = [503, 429];
/** A poll without events that was held for so long may have given up its replay (http.md 11.3), as
 *  one may that an edge answered as it stopped. It is asked again, so often at most. */
const HELD_MS = 900;
const LATE_MAX = 100;

export class Walkers {
  #stopped = false;
  #agent = new Agent({ keepAlive: true, maxSockets: WALKERS });

  constructor(world, random) {
    this.world = world;
    this.random = random;
  }

  /** Walks through the past of some of `subjects`, until `stop`. */
  async run(subjects) {
    await Promise.all(Array.from({ length: WALKERS }, (_, n) => this.#walker(subjects, n)));
  }

  async #walker(subjects, n) {
    const random = this.random.fork(`walker ${n}`);
    while (!this.#stopped) {
      await sleep(random.int(...REST_MS));
      await this.#walk(random.pick(subjects), random.pick(LIMITS), random);
    }
  }

  /** All of `subjects` once more, when nothing fails any longer. */
  async last(subjects) {
    const random = this.random.fork('last');
    for (const subject of subjects) await this.#walk(subject, 100, random);
  }

  /** Only a walk that came to its end is judged. */
  async #walk(subject, limit, random) {
    const { history } = this.world;
    const walk = { subject, t: history.tick(), ms: Date.now(), asked: 0, entries: [] };
    const first = await this.#back(walk, limit, random);
    if (first === undefined || !await this.#ahead(walk, first, random)) return;
    history.walks.push({ ...walk, ended: history.tick() });
  }

  /** Gives the cursor of the first page, or undefined if the round was over before the end. */
  async #back(walk, limit, random) {
    let before = '';
    let cursor;
    do {
      const path = `/v1/subjects/${encodeURIComponent(walk.subject)}/events`
        + `?limit=${limit}&before=${encodeURIComponent(before)}`;
      const page = await this.#ask(walk, this.world.apiUrl + path, random, this.world.headers);
      if (page === undefined) return undefined;
      for (const event of page.events) this.#note(walk, true, 'event', event);
      for (const gap of page.gaps) this.#note(walk, true, 'gap', gap);
      if (before === '') {
        cursor = page.cursor;
        walk.turned = this.world.history.tick();
        if (page.kept) walk.kept = { t: walk.asked, ...this.world.publisher.check(page.kept) };
      }
      before = page.next;
    } while (before !== null);
    walk.paged = this.world.history.tick();
    return cursor;
  }

  /** As a visitor that is subscribed; whether it came to where nothing new was. */
  async #ahead(walk, first, random) {
    let cursor = first;
    for (let late = 0; ;) {
      const path = `/v1/poll?subject=${encodeURIComponent(walk.subject)}`
        + `&cursor=${encodeURIComponent(cursor)}&timeout=0`;
      const address = `http://127.0.0.1:${this.world.publicPort}${path}`;
      const answer = await this.#ask(walk, address, random, {});
      if (answer === undefined) return false;
      if (answer.gap) this.#note(walk, false, 'gap', answer.gap);
      for (const event of answer.events) this.#note(walk, false, 'event', event);
      const hasGivenUp = Date.now() - walk.askedMs >= HELD_MS || this.#edgeStops();
      if (answer.events.length === 0 && !(hasGivenUp && late < LATE_MAX)) return true;
      late += Number(hasGivenUp);
      cursor = answer.cursor;
    }
  }

  #edgeStops() {
    return this.world.history.faults.some(({ closes, ended }) => closes && ended === null);
  }

  #note(walk, page, type, value) {
    const { from, to, reason } = value;
    const more = type === 'gap' ? { from, to, reason } : this.world.publisher.check(value);
    walk.entries.push({ type, page, asked: walk.asked, t: this.world.history.tick(),
      ms: Date.now(), ...more });
  }

  #ask(walk, url, random, headers) {
    return asked(this.world, { method: 'GET', url, random,
      request: { headers, agent: this.#agent }, msMax: ATTEMPT_MS_MAX,
      mayPass: (status) => REFUSED.includes(status),
      begins: () => {
        walk.asked = this.world.history.tick();
        walk.askedMs = Date.now();
      } });
  }

  stop() {
    this.#stopped = true;
  }

  close() {
    this.#agent.destroy();
  }
}
