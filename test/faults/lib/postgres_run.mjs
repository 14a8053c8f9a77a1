// A Halley with a PostgreSQL, faults in an order that a seed decides, and after each round of them
// the promises: every committed event once and no other, the follows are the table, and what the
// API has acknowledged is in both.

import { Postgres } from '../../../examples/postgres/postgres.mjs';
import { api } from '../../lib/client.mjs';
import { prepare } from '../../lib/halley.mjs';
import { metric } from '../../lib/metrics.mjs';
import { sleep, until } from '../../lib/wait.mjs';
import { Gate } from './gate.mjs';
import { FAULTS } from './postgres_faults.mjs';
import { Application, Asker, Reader } from './postgres_load.mjs';
import { makeKiller } from './processes.mjs';
import { again, verdict } from './postgres_verdict.mjs';
import { Random } from './random.mjs';

const APPLICATIONS = 3;
const SETTLE_MS_MAX = 90_000;
const PAGE = 1_000;
/** As many of each kind in a round. */
const ROUND = 2;
const TOGETHER_CHANCE = 0.2;
const PAUSE_MS = [100, 900];

/** All events about the news that are kept, the oldest first. */
async function past(halley) {
  const pages = [];
  let before = '';
  for (;;) {
    const path = `/v1/subjects/news/events?limit=${PAGE}${before}`;
    const { json } = await api(halley, 'GET', path);
    pages.push(...json.events);
    if (!json.next) return pages.reverse();
    before = `&before=${encodeURIComponent(json.next)}`;
  }
}

class World {
  tally = { events: 0, follows: 0, asked: 0, again: 0, faults: {}, answers: {} };
  failures = [];
  /** How much the client had at each kill of the brain. */
  kills = [];
  #round = 0;

  constructor(seed) {
    this.random = new Random(seed);
  }

  async open() {
    this.postgres = await Postgres.start(['max_wal_senders = 10', 'max_connections = 60']);
    this.gate = await Gate.to(() => this.postgres.port);
    this.postgres.sql('CREATE TABLE follows (a int, b int, PRIMARY KEY (a, b)); '
      + 'CREATE TABLE written (writer text, n int, PRIMARY KEY (writer, n)); '
      + 'INSERT INTO follows SELECT n, n + 1000 FROM generate_series(1000, 3000) n');
    this.halley = await prepare({ settings: {
      HALLEY_POSTGRES_URL: `postgres://shop@127.0.0.1:${this.gate.port}/postgres`,
      HALLEY_POSTGRES_FOLLOWS: 'follows(a, b)',
      HALLEY_POSTGRES_PUBLISH: 'on',
      HALLEY_STORE_BACKEND: 'postgres',
      HALLEY_HISTORY_RETENTION: '24h',
    } });
    this.killer = makeKiller(this.halley.folder);
    const { code, stdout, stderr } = await this.halley.command('postgres', 'setup');
    if (code !== 0) throw new Error(`postgres setup: ${stdout}${stderr}`);
    Object.assign(this.halley.settings, this.killer.environment);
    await this.halley.start();
    // What is committed before there is a slot, nobody has.
    await until('it streams', async () =>
      await metric(this.halley, 'halley_postgres_streaming') === 1);
    this.reader = new Reader(this.halley);
    this.reading = this.reader.run();
  }

  async close() {
    this.reader?.stop();
    await this.reading;
    await this.halley?.stop().catch(() => this.halley.killAll());
    this.gate?.close();
    await this.postgres?.stop();
  }

  async fault(kind) {
    const { random } = this;
    if (kind === 'brain' || kind === 'process') this.kills.push(this.reader.seen.length);
    await FAULTS[kind](this);
    this.tally.faults[kind] = (this.tally.faults[kind] ?? 0) + 1;
    await sleep(random.int(...PAUSE_MS));
  }

  /** Two of each kind in any order; a process of Halley may be hit while PostgreSQL is. */
  async round(kinds) {
    this.#round += 1;
    const { random } = this;
    const load = [...Array(APPLICATIONS).keys()].map((n) =>
      new Application(this.postgres, `w${this.#round}.${n}`, random));
    load.push(new Asker(this.halley, random));
    const running = load.map((each) => each.run());
    const order = kinds.flatMap((kind) => Array(ROUND).fill(kind))
      .map((kind) => [random.float(), kind]).sort(([a], [b]) => a - b).map(([, kind]) => kind);
    while (order.length > 0) {
      const [first, second] = order;
      const isOwn = (kind) => ['brain', 'edge', 'process'].includes(kind);
      const isBoth = second !== undefined && isOwn(first) !== isOwn(second)
        && random.chance(TOGETHER_CHANCE);
      const now = order.splice(0, isBoth ? 2 : 1);
      await Promise.all(now.map((kind) => this.fault(kind)));
    }
    for (const each of load) each.stop();
    await Promise.all(running);
    const asker = load.at(-1);
    for (const [code, n] of Object.entries(asker.answers)) {
      this.tally.answers[code] = (this.tally.answers[code] ?? 0) + n;
    }
    this.failures.push(...asker.wrong);
    await this.judge(asker);
  }

  async judge(asker) {
    const { halley, postgres } = this;
    const written = postgres.sql("SELECT writer || '-' || n FROM written").split('\n');
    const table = postgres.sql("SELECT a || ' ' || b FROM follows").split('\n').sort();
    let events = [];
    await until('all has come', async () => {
      events = (await past(halley)).map(({ id }) => id);
      const has = new Set(events);
      return written.every((id) => has.has(id))
        && await metric(halley, 'halley_follows') === table.length
        && postgres.sql('SELECT count(*) FROM halley.outbox') === '0';
    }, SETTLE_MS_MAX).catch(({ message }) => this.failures.push(
      `${message}; in the outbox: ${postgres.sql('SELECT count(*) FROM halley.outbox')}`));
    await until('the client has them', () => this.reader.seen.length >= written.length,
      SETTLE_MS_MAX).catch(() => {});
    const { seen, gaps } = this.reader;
    this.failures.push(...verdict({ written, events, seen, gaps, table,
      kills: this.kills,
      graph: await this.#graph(table), wanted: asker.wanted,
      rejected: postgres.sql('SELECT source FROM halley.rejected').split('\n').filter(Boolean) }));
    Object.assign(this.tally, { events: written.length, follows: table.length,
      asked: this.tally.asked + asker.wanted.size,
      again: again(seen, this.kills).excused.length });
  }

  async #graph(table) {
    const users = new Set(table.map((pair) => pair.split(' ')[0]));
    for (let user = 1; user <= 200; user += 1) users.add(`${user}`);
    const graph = [];
    for (const user of users) {
      const { json } = await api(this.halley, 'GET', `/v1/users/${user}/following?limit=1000`);
      graph.push(...json.following.map((subject) => `${user} ${subject}`));
    }
    return graph;
  }
}

/** `kills`: of each kind. Gives `{ok, text, tally}`. */
export async function runPostgres({ seed, kills, kinds = Object.keys(FAULTS), say = () => {} }) {
  const world = new World(seed);
  const started = Date.now();
  try {
    await world.open();
    for (let done = 0; done < kills && world.failures.length === 0; done += ROUND) {
      await world.round(kinds);
      say(`${Math.round((Date.now() - started) / 1_000)} s: ${JSON.stringify(world.tally)}`);
    }
  } catch (error) {
    world.failures.push(`${error.stack}\n${world.halley?.logTail}`);
  } finally {
    await world.close();
  }
  const { tally, failures } = world;
  const ok = failures.length === 0;
  const text = `seed ${seed}: ${Object.entries(tally.faults).map(([kind, n]) => `${n} ${kind}`)
    .join(', ')}; ${tally.events} events committed, ${tally.follows} follows in the table, answers `
    + `of the API ${JSON.stringify(tally.answers)}: ${ok
      ? `0 lost, 0 doubled, 0 out of order, the follows are the table; ${tally.again} came to the `
        + 'client again under their ids around a kill of the brain' : 'FAILED'}`;
  return { ok, tally, text: [text, ...failures].join('\n  ') };
}
