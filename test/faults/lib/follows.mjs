// Follows and unfollows, each tried again until it is acknowledged, one at a time for each pair.

import { Agent } from 'node:http';
import { http } from '../../system/lib/client.mjs';
import { sleep, within } from '../../system/lib/wait.mjs';

const RETRY_MS = 50;
const ATTEMPT_MS_MAX = 10_000;

export class Follows {
  #busy = new Set();
  #agent = new Agent({ keepAlive: true });

  constructor(world) {
    this.world = world;
  }

  /** All of `pairs` in one request. */
  async change(op, pairs) {
    const free = pairs.filter((pair) => !this.#busy.has(pair.join('\n')));
    for (const pair of free) this.#busy.add(pair.join('\n'));
    const operations = free.map(([user, subject]) =>
      this.world.history.followBegun(op, user, subject));
    const body = free.map(([user, subject]) => `${JSON.stringify({ user, subject })}\n`).join('');
    while (free.length > 0 && !this.world.isOver) {
      if (await this.#attempt(op, body)) {
        for (const operation of operations) this.world.history.followAcked(operation);
        break;
      }
      await sleep(RETRY_MS);
    }
    for (const pair of free) this.#busy.delete(pair.join('\n'));
  }

  async #attempt(op, body) {
    try {
      const answer = http(op === 'follow' ? 'POST' : 'DELETE', `${this.world.apiUrl}/v1/follows`,
        { body, headers: { 'content-type': 'application/x-ndjson' }, agent: this.#agent });
      const { status, json } = await within(op, answer, ATTEMPT_MS_MAX);
      if (status === 200 && json?.errors?.length > 0) this.world.wrong(`${op}: ${json.errors}`);
      return status === 200;
    } catch {
      return false; // as good as no answer: it is done again
    }
  }

  close() {
    this.#agent.destroy();
  }
}
