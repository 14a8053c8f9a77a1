// Data directories to be harmed, made once: one of a brain that was killed, one of a brain that was
// stopped, and older copies of both; with them the model of what has to be found there.

import { cpSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { http } from '../../lib/client.mjs';
import { sleep } from '../../lib/wait.mjs';
import { awaitCheckpoint, storeFiles } from './disk.mjs';
import { Server } from './server.mjs';
import { World } from './world.mjs';

const ROWS = 36_000;
const READERS = 8;
const EVENTS_ABOUT = 3;
/** A poll that was answered later may have given up its replay (http.md 11.3), and is asked again,
 *  so often at most. */
const HELD_MS = 900;
const LATE_MAX = 20;
/** A checkpoint that was seen to begin is whole by then. */
const WRITTEN_MS = 1_000;
const PROFILE = {
  name: 'still', promise: {}, users: 0, subjects: 0, hasGraph: true, hasKeys: true,
  // The cases go on for longer than events are kept by default.
  settings: { HALLEY_HISTORY_RETENTION: '4h', HALLEY_LOG_LEVEL: 'notice',
    HALLEY_DRAIN_TIME: '100ms', HALLEY_EDGE_WORKERS: '1' },
};

export class Still {
  /** Copies of the data directory: `{name, folder, olders}` */
  bases = [];
  /** user -> `{cursor, since}`, from before the events */
  readers = new Map();
  /** Users that were deleted: their past is what was published behind that. */
  gone = [];
  #olders = [];

  static async make(random) {
    const still = new Still();
    still.folder = mkdtempSync(join(tmpdir(), 'halley-still-'));
    process.once('exit', () => still.remove());
    still.server = await Server.start(PROFILE);
    still.world = new World(PROFILE, still.server, random, random.int(1, 0xffffff).toString(36));
    await still.#grow(random);
    return still;
  }

  /** A life with imports, checkpoints, events, stops and a kill. */
  async #grow(random) {
    const { world, server } = this;
    await world.keys.begin();
    let before = storeFiles(world);
    await this.#change(random, ROWS);
    for (const user of random.sample(world.graph.users, READERS)) await this.#enter(user);
    for (const user of world.leavers) await this.#live(user, random);
    const [first, second, third, fourth] = world.leavers;
    await this.#change(random, 100);
    await this.#delete(first, random);
    await awaitCheckpoint(world, before);
    await sleep(WRITTEN_MS);
    await server.halley.terminate('SIGTERM');
    this.#olders.push(this.#copy('older'));
    await server.startBrain();
    before = storeFiles(world);
    await this.#delete(second, random);
    await this.#change(random, ROWS);
    await awaitCheckpoint(world, before);
    await sleep(WRITTEN_MS);
    await server.killBoth();
    this.#olders.push(this.#copy('newer'));
    await server.startBrain();
    await this.#delete(third, random);
    await this.#change(random, 2_000);
    await this.#delete(fourth, random);
    await server.killBoth();
    this.#add('killed');
    await server.startBrain();
    await server.halley.terminate('SIGTERM');
    this.#add('stopped');
    if (world.wrongs.length > 0) throw new Error(world.wrongs.join('; '));
  }

  async #change(random, rows) {
    const { graph, keys, publisher } = this.world;
    await graph.import(rows);
    for (let n = 0; n < 6; n += 1) {
      await graph.stir();
      await keys.change(random);
      for (const subject of random.sample(graph.subjects, 6)) await publisher.one(subject, random);
    }
  }

  /** One that follows and is followed, with events about it, some of which are kept, and for it. */
  async #live(user, random) {
    const { world } = this;
    await this.#enter(user);
    await world.follows.change('follow', [
      ...random.sample(world.graph.subjects, 2).map((subject) => [user, subject]),
      ...[...this.readers.keys()].filter((reader) => reader !== user)
        .map((reader) => [reader, user])]);
    await this.#about(user, random);
  }

  async #about(user, random) {
    const { leavers, publisher } = this.world;
    for (let n = 0; n < EVENTS_ABOUT; n += 1) await publisher.one(user, random);
    await publisher.one(`q${leavers.indexOf(user)}`, random);
  }

  /** It is deleted, and something is published about it as somebody new. */
  async #delete(user, random) {
    const { history, apiUrl, headers } = this.world;
    await this.#about(user, random);
    const death = history.deathBegun(user);
    const { status, body } = await http('DELETE', `${apiUrl}/v1/users/${user}`, { headers });
    if (status !== 200) throw new Error(`a deletion was answered ${status} ${body}`);
    history.deathAcked(death);
    this.gone.push(user);
    await this.#about(user, random);
  }

  async #enter(user) {
    const { json } = await http('GET', this.#pollUrl(user));
    this.readers.set(user, { cursor: json.cursor, since: this.world.history.tick() });
  }

  #pollUrl(user) {
    return `${this.server.halley.publicUrl}/v1/poll?user=${encodeURIComponent(user)}&timeout=0`;
  }

  #copy(name) {
    const to = join(this.folder, name);
    cpSync(this.server.dataDir, to, { recursive: true, filter: (path) => !path.endsWith('.sock') });
    return to;
  }

  #add(name) {
    this.bases.push({ name, folder: this.#copy(name), olders: this.#olders });
  }

  /** The pages of a subject's past, and its kept value: `{came, gaps}`. */
  async past(subject) {
    const { apiUrl, headers } = this.world;
    const came = new Set();
    const gaps = [];
    for (let before = ''; before !== null;) {
      const { status, body, json } = await http('GET',
        `${apiUrl}/v1/subjects/${subject}/events?limit=20&before=${before}`, { headers });
      if (status !== 200) throw new Error(`a page answered ${status} ${body}`);
      for (const { id } of json.kept ? [...json.events, json.kept] : json.events) came.add(id);
      gaps.push(...json.gaps);
      before = json.next;
    }
    return { came, gaps };
  }

  /** What comes to a reader who goes on from its cursor: `{came, gaps}`. */
  async resume(user) {
    let { cursor } = this.readers.get(user);
    const came = new Set();
    const gaps = [];
    for (let late = 0; ;) {
      const begun = Date.now();
      const { status, body, json } = await http('GET', `${this.#pollUrl(user)}&cursor=${cursor}`);
      if (status !== 200) throw new Error(`a poll answered ${status} ${body}`);
      if (json.gap) gaps.push(json.gap);
      for (const { id } of json.events) came.add(id);
      const isLate = Date.now() - begun >= HELD_MS && late < LATE_MAX;
      if (!json.gap && json.events.length === 0 && !isLate) return { came, gaps };
      late += Number(isLate);
      cursor = json.cursor;
    }
  }

  remove() {
    this.server?.remove();
    rmSync(this.folder, { recursive: true, force: true });
  }
}
