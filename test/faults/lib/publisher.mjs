// Publishers: numbered events about many subjects, each with an id of its own choice, tried again
// with the same id until it is acknowledged. A subject's events are published one after the other,
// except those about its *crowd* subjects, which are published side by side and have no order.
// Private events have a name in place of their subject, which stands for the users they are for;
// and so have joint events, for the subjects that they are about.

import { createHash } from 'node:crypto';
import { Agent } from 'node:http';
import { http } from '../../lib/client.mjs';
import { sleep, within } from '../../lib/wait.mjs';

const RETRY_MS = [10, 150];
const ATTEMPT_MS_MAX = 10_000;
const MEMORY_SHARE = 0.1;
const BATCH_SHARE = 0.15;
const AGAIN_SHARE = 0.02;

const digest = (text) => createHash('sha1').update(text).digest('base64').slice(0, 12);

export class Publisher {
  #numbers = new Map();
  #stopped = false;
  #agent = new Agent({ keepAlive: true, maxSockets: 64 });
  answers = {};

  /** @param mark makes the ids of this round different from any other's */
  constructor(world, random, mark) {
    this.world = world;
    this.random = random;
    this.mark = mark;
  }

  /** Publishes about `subjects`, one lane each, until `stop`; a lane rests `restMs` in between. */
  async run(subjects, crowd, restMs) {
    const lanes = subjects.map((subject) => this.#lane([subject], restMs, subject));
    for (const n of [1, 2, 3]) lanes.push(this.#lane(crowd, restMs, `crowd ${n}`));
    await Promise.all(lanes);
  }

  async #lane(subjects, restMs, name) {
    const random = this.random.fork(name);
    while (!this.#stopped) {
      await sleep(random.int(1, 2 * restMs));
      const count = random.chance(BATCH_SHARE) && subjects.length > 1 ? random.int(2, 6) : 1;
      const picked = random.sample(subjects, count);
      if (this.#stopped) return;
      await (picked.length > 1 ? this.#batch(picked, random) : this.one(picked[0], random));
    }
  }

  #begin(subject, random, padding = random.int(0, 300)) {
    const n = (this.#numbers.get(subject) ?? 0) + 1;
    this.#numbers.set(subject, n);
    const id = `${this.mark}-${subject}-${n}`;
    const ack = random.chance(MEMORY_SHARE) ? 'memory' : 'disk';
    const event = this.world.history.publishBegun(id, subject, n, ack);
    const pad = `${n}ž`.repeat(1 + padding / 4).slice(0, padding);
    const alone = this.world.history.privates.get(subject);
    const subjects = this.world.history.joints.get(subject);
    const whom = alone ? { to: random.sample([...alone], alone.size) }
      : subjects ? { subjects } : { subject };
    if (this.world.history.kept.has(subject)) whom.keep = true;
    return { event, body: { id, ...whom, ack, data: { n, pad, sum: digest(`${id}${pad}`) } } };
  }

  /** Publishes one event and returns when it is acknowledged. */
  async one(subject, random, padding) {
    const { event, body } = this.#begin(subject, random, padding);
    const text = JSON.stringify(body);
    await this.#retry(random, [event], async () => {
      const answer = await this.#post(text, 'application/json');
      if (answer.status === 200) this.#acknowledge(event, answer.json);
      return answer;
    });
    // The same again, after it was acknowledged: the first answer, and no second event.
    if (body.ack === 'disk' && random.chance(AGAIN_SHARE)) {
      await this.#post(text, 'application/json').catch(() => {});
      // An id is known for as long as its event is kept; after that it names another.
      const { retentionMs = Infinity } = this.world.profile.promise;
      if (Date.now() - event.begunMs >= retentionMs) event.unknown += 1;
    }
  }

  async #batch(subjects, random) {
    const all = subjects.map((subject) => this.#begin(subject, random));
    await this.#retry(random, all.map(({ event }) => event), async (open) => {
      const left = all.filter(({ event }) => open.includes(event));
      const text = left.map(({ body }) => `${JSON.stringify(body)}\n`).join('');
      const answer = await this.#post(text, 'application/x-ndjson');
      if (answer.status !== 200) return answer;
      const results = answer.body.trimEnd().split('\n').map((line) => JSON.parse(line));
      for (const [index, { event }] of left.entries()) {
        if (results[index]?.error === undefined) this.#acknowledge(event, results[index]);
      }
      return answer;
    });
  }

  #acknowledge(event, answer) {
    if (answer?.id !== event.id || !Number.isInteger(answer.sessions)) {
      this.world.wrong(`an answer to ${event.id} that isn't its own: ${JSON.stringify(answer)}`);
    }
    if (!this.world.isDark) this.world.history.publishAcked(event);
  }

  #post(text, type) {
    return within('a publish', http('POST', `${this.world.apiUrl}/v1/events`,
      { body: text, headers: { 'content-type': type, ...this.world.headers },
        agent: this.#agent }), ATTEMPT_MS_MAX);
  }

  /** Calls `attempt(open)` until every event has its acknowledgement, or the round gives up. */
  async #retry(random, events, attempt) {
    for (;;) {
      const open = events.filter(({ acked }) => acked === null);
      if (open.length === 0 || this.world.isOver) return;
      let status;
      try {
        ({ status } = await attempt(open));
      } catch (error) {
        status = error.code ?? 'no answer';
      }
      this.answers[status] = (this.answers[status] ?? 0) + 1;
      if (status >= 400 && status < 500) {
        this.world.wrong(`a good publish was refused with ${status}`);
      }
      for (const event of open) if (event.acked === null) event.unknown += 1;
      if (open.some(({ acked }) => acked === null)) await sleep(random.int(...RETRY_MS));
    }
  }

  /** An event as it was received, for the history: `whole` when it is what was published. */
  check({ id, subject, subjects, private: isPrivate, at, data }) {
    const whole = data?.sum === digest(`${id}${data?.pad}`) && Number.isInteger(at);
    const { events, privates, joints } = this.world.history;
    const name = events.get(id)?.subject;
    const isNamed = (isPrivate && privates.has(name))
      || (subjects && `${subjects}` === `${joints.get(name)}`);
    const about = isNamed ? name : subject;
    return { id, subject: about, n: data?.n, at, whole };
  }

  stop() {
    this.#stopped = true;
  }

  close() {
    this.#agent.destroy();
  }
}
