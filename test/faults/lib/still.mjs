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
    await this.#change(random, 100);
    await awaitCheckpoint(world, before);
    await sleep(WRITTEN_MS);
    await server.halley.terminate('SIGTERM');
    this.#olders.push(this.#copy('older'));
    await server.startBrain();
    before = storeFiles(world);
    await this.#change(random, ROWS);
    await awaitCheckpoint(world, before);
    await sleep(WRITTEN_MS);
    await server.killBoth();
    this.#olders.push(this.#copy('newer'));
    await server.startBrain();
    await this.#change(random, 2_000);
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

  /** What comes to a reader who goes on from its cursor: `{ids, gaps}`. */
  async resume(user) {
    let { cursor } = this.readers.get(user);
    const [ids, gaps] = [[], []];
    for (let late = 0; ;) {
      const begun = Date.now();
      const { status, body, json } = await http('GET', `${this.#pollUrl(user)}&cursor=${cursor}`);
      if (status !== 200) throw new Error(`a poll answered ${status} ${body}`);
      if (json.gap) gaps.push(json.gap);
      ids.push(...json.events.map(({ id }) => id));
      const isLate = Date.now() - begun >= HELD_MS && late < LATE_MAX;
      if (!json.gap && json.events.length === 0 && !isLate) return { ids, gaps };
      late += Number(isLate);
      cursor = json.cursor;
    }
  }

  remove() {
    this.server?.remove();
    rmSync(this.folder, { recursive: true, force: true });
  }
}
