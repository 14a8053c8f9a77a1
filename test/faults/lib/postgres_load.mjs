// The load on Halley and PostgreSQL while faults come: transactions of an application, follows by
// Halley's API, and a client that follows the news.

import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { http } from '../../lib/client.mjs';
import { sse } from '../../lib/streams.mjs';
import { sleep } from '../../lib/wait.mjs';

const API_USERS = 8;
const API_SUBJECTS = 6;
/** Pairs of the application's own begin here; those before are the API's alone. */
const OWN_FROM = 100;
const RETRY_MS = 50;

/** One psql for many transactions, as a pool's connection is; another one when it ends. */
class Session {
  #postgres;
  #child;

  constructor(postgres) {
    this.#postgres = postgres;
  }

  #open() {
    if (this.isOpen) return;
    const options = ['-X', '-q', '-A', '-t', '-v', 'ON_ERROR_STOP=1', this.#postgres.url];
    this.#child = spawn('psql', options, { stdio: ['pipe', 'pipe', 'ignore'] });
    this.#child.stdin.on('error', () => {});
    this.lines = createInterface({ input: this.#child.stdout });
    this.isOpen = true;
    this.closed = new Promise((resolve) => {
      this.lines.once('close', () => {
        this.isOpen = false;
        resolve(false);
      });
    });
  }

  /** Whether it was done; `false`: perhaps, perhaps not. */
  async run(script, mark) {
    this.#open();
    const done = new Promise((resolve) => {
      this.lines.on('line', (line) => { if (line === mark) resolve(true); });
    });
    this.#child.stdin.write(`${script}\n\\echo ${mark}\n`);
    const isDone = await Promise.race([done, this.closed]);
    this.lines.removeAllListeners('line');
    return isDone;
  }

  async end() {
    if (!this.isOpen) return;
    this.#child.stdin.end();
    await this.closed;
  }
}

/** Transactions one after the other: a follow that comes or goes, an event, a row that says so. */
export class Application {
  count = 0;
  #isOver = false;

  constructor(postgres, name, random) {
    this.name = name;
    this.session = new Session(postgres);
    this.random = random;
  }

  async run() {
    while (!this.#isOver) {
      this.count += 1;
      const id = `${this.name}-${this.count}`;
      const pair = `(${this.random.int(OWN_FROM, OWN_FROM + 60)}, ${this.random.int(1, 7)})`;
      const change = this.random.chance(0.4) ? `DELETE FROM follows WHERE (a, b) = ${pair}`
        : `INSERT INTO follows VALUES ${pair} ON CONFLICT DO NOTHING`;
      // Sometimes by the outbox, and sometimes undone.
      const event = this.random.chance(0.3)
        ? `INSERT INTO halley.outbox (subject, data, event_id) VALUES ('news', '"${id}"', '${id}')`
        : `DO $$ BEGIN PERFORM halley.publish('news', '"${id}"', '${id}'); END $$`;
      const end = this.random.chance(0.1) ? 'ROLLBACK' : 'COMMIT';
      const isDone = await this.session.run(
        `BEGIN; ${change}; INSERT INTO written VALUES ('${this.name}', ${this.count}); ${event}; `
        + `${end};`, id);
      if (!isDone) await sleep(RETRY_MS);
      await sleep(this.random.int(0, 15));
    }
    await this.session.end();
  }

  stop() {
    this.#isOver = true;
  }
}

/** Asks Halley to follow and to unfollow, each pair again until it is answered with 200. */
export class Asker {
  /** What each of its pairs has to be: acknowledged, and nobody else changes them. */
  wanted = new Map();
  answers = {};
  wrong = [];
  #isOver = false;

  constructor(halley, random) {
    this.halley = halley;
    this.random = random;
  }

  async run() {
    while (!this.#isOver) {
      const user = this.random.int(1, API_USERS);
      const subject = this.random.int(50, 50 + API_SUBJECTS);
      await this.#ask(user, subject, this.random.chance(0.6));
      await sleep(this.random.int(0, 20));
    }
  }

  async #ask(user, subject, isFollow) {
    const body = JSON.stringify({ user: `${user}`, subject: `${subject}` });
    for (;;) {
      const answer = await http(isFollow ? 'POST' : 'DELETE', `${this.halley.apiUrl}/v1/follows`,
        { body, headers: { 'content-type': 'application/x-ndjson' } })
        .catch(() => ({ status: 0 }));
      const code = answer.status === 503 ? answer.json?.error?.code ?? '503' : `${answer.status}`;
      this.answers[code] = (this.answers[code] ?? 0) + 1;
      if (answer.status === 200) break;
      await sleep(RETRY_MS);
    }
    this.wanted.set(`${user} ${subject}`, isFollow);
    // In effect when it was answered. A brain that is away says nothing.
    const list = await http('GET', `${this.halley.apiUrl}/v1/users/${user}/following`)
      .catch(() => ({ status: 0 }));
    if (list.status !== 200) return;
    if (list.json.following.includes(`${subject}`) !== isFollow) {
      this.wrong.push(`${user} ${subject}: ${isFollow ? 'followed' : 'unfollowed'}, not in effect`);
    }
  }

  stop() {
    this.#isOver = true;
  }
}

/** A client of the news that comes back with its cursor: what it got, in order. */
export class Reader {
  seen = [];
  gaps = 0;
  #isOver = false;

  constructor(halley) {
    this.halley = halley;
  }

  async run() {
    let cursor;
    while (!this.#isOver) {
      try {
        const stream = await sse(this.halley, 'news', {}, cursor);
        this.stream = stream;
        while (!this.#isOver && !stream.isClosed) {
          this.#take(stream);
          await sleep(20);
        }
        this.#take(stream);
        cursor = stream.cursor ?? cursor;
        stream.close();
      } catch {
        await sleep(RETRY_MS);
      }
    }
  }

  #take(stream) {
    this.seen.push(...stream.events.drain().map(({ id }) => id));
    this.gaps += stream.gaps.drain().length;
  }

  stop() {
    this.#isOver = true;
  }
}
