// Shared by the phases of a long run: the server under test, the clients, the recorder.

import { prepare } from '../../test/lib/halley.mjs';
import { api, http } from '../../test/lib/client.mjs';
import { sleep, until } from '../../test/lib/wait.mjs';
import { metrics } from '../lib/crowd.mjs';
import { say } from '../lib/say.mjs';
import { kernelMemory, pssOf } from './memory.mjs';

/** A brain with millions of follows in its store needs a while. */
const START_MS_MAX = 120_000;

export class Stage {
  /** Process ids, found after each start: /proc is too much to look through for every sample. */
  #pids = { brain: [], edge: [] };
  #isOver = false;

  constructor(plan, folder) {
    this.plan = plan;
    this.folder = folder;
    this.found = {};
  }

  get pids() {
    return this.#pids;
  }

  async startHalley() {
    const { workers, heartbeat } = this.plan;
    const halley = await prepare({ settings: {
      HALLEY_EDGE_WORKERS: `${workers}`, HALLEY_LOG_LEVEL: 'warning', HALLEY_DRAIN_TIME: '1s',
      ...(heartbeat && { HALLEY_STREAM_HEARTBEAT: heartbeat }),
    } });
    if (this.#isOver) return;
    this.halley = halley;
    await this.startAgain();
  }

  /** Starts the launcher and waits until Halley is ready, which takes long with a big store. */
  async startAgain() {
    if (this.#isOver) return;
    this.halley.spawn();
    try {
      await until('Halley is ready', async () => {
        const { status } = await api(this.halley, 'GET', '/readyz');
        return status === 200;
      }, START_MS_MAX);
    } catch (error) {
      throw new Error(`${error.message}\nthe log's tail:\n${this.halley.logTail}`);
    }
    this.findPids();
  }

  findPids() {
    this.#pids = { brain: [this.halley.brainPid()], edge: this.halley.edgePids() };
  }

  async stopHalley() {
    this.#pids = { brain: [], edge: [] };
    const { halley } = this;
    this.halley = undefined;
    await halley?.stop();
  }

  /** The end: a phase that was left in the middle starts nothing any more. */
  close() {
    this.#isOver = true;
    return this.stopHalley();
  }

  metrics() {
    return metrics(this.halley);
  }

  /** Memory by part, now and exactly, after what was grown has had time to be given back. */
  async memoryNow(clients) {
    await this.recorder.unlessStopped(sleep(this.plan.settle_ms));
    const { brain, edge } = this.#pids;
    return { brain: pssOf(brain), edge: pssOf(edge), clients: pssOf(clients),
      kernel: kernelMemory() };
  }

  /** What may explain a failure: the edge's refusals and the end of the log. */
  async symptoms() {
    const log = this.halley?.logTail.split('\n').filter(Boolean).slice(-3).join(' | ');
    let refused = '';
    try {
      const { body } = await http('GET', `${this.halley.apiUrl}/metrics`);
      const all = [...body.matchAll(/^halley_edge_refused_connections_total\S* (\d+)/gm)];
      const sum = all.reduce((total, [, count]) => total + Number(count), 0);
      if (sum > 0) refused = `The edge refused ${sum} connections: a descriptor table was full. `;
    } catch (error) {
      refused = `The server doesn't answer (${error.message}). `;
    }
    return `${refused}${log ? `Its log ends with: ${log}` : ''}`;
  }

  say(text) {
    say(`  ${text}`);
  }
}
