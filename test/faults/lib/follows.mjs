// Follows and unfollows, one at a time for each pair: each is tried again until it is acknowledged,
// or once, with an unknown outcome unless it is acknowledged.

import { Agent } from 'node:http';
import { http } from '../../lib/client.mjs';
import { sleep, within } from '../../lib/wait.mjs';

const RETRY_MS = 50;
const ATTEMPT_MS_MAX = 20_000;
const ACKED_MS_MAX = 90_000;
/** Refusals that are for the disk: they say when to come again. */
const DISK = new Set(['disk_full', 'store_failed']);

export class Follows {
  #busy = new Set();
  #agent = new Agent({ keepAlive: true });
  #quietUntil = 0;
  #last = 'none';
  #isHopeless = false;
  answers = {};

  constructor(world) {
    this.world = world;
  }

  /** Asks for nothing during `ms`, so that the store has its rest, too. */
  beQuiet(ms) {
    this.#quietUntil = Date.now() + ms;
  }

  /** The rest is over. */
  beLoud() {
    this.#quietUntil = 0;
  }

  get isQuiet() {
    return Date.now() < this.#quietUntil;
  }

  /**
   * All of `pairs` in one request; `once` tries it once. Pairs that another request is about are
   * left out. Gives whether it was acknowledged.
   */
  async change(op, pairs, { once = false } = {}) {
    while (!once && this.isQuiet) await sleep(RETRY_MS);
    const free = pairs.filter((pair) => !this.#busy.has(pair.join('\n')));
    for (const pair of free) this.#busy.add(pair.join('\n'));
    const operations = free.map(([user, subject]) =>
      this.world.history.followBegun(op, user, subject));
    const body = free.map(([user, subject]) => `${JSON.stringify({ user, subject })}\n`).join('');
    const end = Date.now() + ACKED_MS_MAX;
    let isAcked = false;
    while (free.length > 0 && !this.world.isOver) {
      isAcked = await this.#attempt(op, body);
      if (isAcked || once || this.#isHopeless) break;
      if (Date.now() >= end) {
        this.world.wrong(`a ${op} got no acknowledgement, but ${this.#last}`);
        break;
      }
      await sleep(RETRY_MS);
    }
    if (isAcked) for (const operation of operations) this.world.history.followAcked(operation);
    for (const pair of free) this.#busy.delete(pair.join('\n'));
    return isAcked;
  }

  async #attempt(op, body) {
    try {
      const answer = await within(op, http(op === 'follow' ? 'POST' : 'DELETE',
        `${this.world.apiUrl}/v1/follows`, { body, agent: this.#agent,
          headers: { 'content-type': 'application/x-ndjson', ...this.world.headers } }),
      ATTEMPT_MS_MAX);
      this.#judge(op, answer);
      return answer.status === 200 && !this.world.isDark;
    } catch (error) {
      this.#last = error.message;
      return false; // as good as no answer: it is done again
    }
  }

  #judge(op, { status, headers, body, json }) {
    const code = json?.error?.code ?? '';
    const name = `${status} ${code}`.trim();
    this.#last = `${status} ${body.slice(0, 200)}`;
    this.answers[name] = (this.answers[name] ?? 0) + 1;
    if (status === 200 && json?.errors?.length > 0) this.world.wrong(`${op}: ${body}`);
    this.#isHopeless = status >= 400 && status < 500;
    if (this.#isHopeless) this.world.wrong(`a good ${op} was refused: ${body}`);
    if (status === 503 && DISK.has(code) && headers['retry-after'] === undefined) {
      this.world.wrong(`a ${op} was refused with ${code}, and without Retry-After`);
    }
  }

  close() {
    this.#agent.destroy();
  }
}
