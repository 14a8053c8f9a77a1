// Looks at everything twice a second and writes it down, a line of JSON each, until the run ends.
//
// A sample is `{t_s, phase, connected, deliveries_per_s, lost, latency_ms, memory_bytes, cpu}`;
// between them are marks, `{t_s, mark}`. edge/halley-report draws them. Missing members had no
// value then: no latency where no event came, no part of a process that is dead.
//
// It also keeps the machine alive: before memory runs out it kills the load clients, whose sockets
// hold most of it, and whoever waits gets a `Stop` that says how far it came.

import { createWriteStream, readFileSync } from 'node:fs';
import { once } from 'node:events';
import { totalmem } from 'node:os';
import { sleep } from '../../test/lib/wait.mjs';
import { killLoad, pidsOf } from '../lib/load.mjs';
import { cpuSeconds } from '../lib/process.mjs';
import { say, sayNow } from '../lib/say.mjs';
import { fixed, whole } from '../lib/words.mjs';
import { kernelMemory, pssOf } from './memory.mjs';

/** Between two looks, unless the run is longer than an hour. */
export const SAMPLE_MS = 500;
/** PSS is summed over pages, tens of ms at gigabytes: it gets at most this share of the time. */
const PSS_SHARE_MAX = 0.02;
/** Between two lines of progress where nobody watches a terminal. */
const LINE_MS = 10_000;
/** Memory that stays available unless told otherwise; with less the machine chooses a victim. */
const KEPT_BYTES = Math.max(400e6, 0.02 * totalmem());
const TICKS_PER_S = 100;
const NS_PER_S = 1e9;

/** The run can't go on; the message is a sentence for a person. */
export class Stop extends Error {}

const rounded = (object) => JSON.parse(JSON.stringify(object, (_, value) =>
  (typeof value === 'number' && !Number.isInteger(value) ? Number(value.toPrecision(5)) : value)));

/** Seconds in which processors did something, of all processes and the kernel. */
function busySeconds() {
  const [user, nice, system, , , irq, softirq] =
    readFileSync('/proc/stat', 'utf8').split('\n')[0].trim().split(/\s+/).slice(1).map(Number);
  return (user + nice + system + irq + softirq) / TICKS_PER_S;
}

export class Recorder {
  #file;
  #began = process.hrtime.bigint();
  #server;
  #watched = new Map();
  #phase = 'start';
  #pss = { at: 0, cost: 0, bytes: { brain: 0, edge: 0, clients: 0 } };
  #cpu = { at: 0, busy: 0, of: new Map() };
  #kernelBefore = kernelMemory().all;
  #running = true;
  #loop;
  #reject;
  #everyMs;
  #keptBytes;
  #lineAt = 0;

  /** `server` gives `{brain, edge}`, each a list of process ids, whenever it is asked. */
  constructor(path, server, { everyMs = SAMPLE_MS, keptBytes = KEPT_BYTES } = {}) {
    this.#file = createWriteStream(path);
    this.#everyMs = everyMs;
    this.#keptBytes = keptBytes;
    this.#server = server;
    this.samples = [];
    this.stopped = new Promise((_, reject) => { this.#reject = reject; });
    // Whoever waits for something else at that moment learns it with its next step.
    this.stopped.catch(() => {});
    this.#loop = this.#run();
  }

  get seconds() {
    return Number(process.hrtime.bigint() - this.#began) / NS_PER_S;
  }

  get last() {
    return this.samples.at(-1);
  }

  get phase() {
    return this.#phase;
  }

  /** Memory that the kernel had for itself when the run began. */
  get kernelBefore() {
    return this.#kernelBefore;
  }

  begin(phase) {
    this.#phase = phase;
    say(`— ${phase}`);
  }

  mark(text) {
    this.#write({ t_s: this.seconds, mark: text });
    say(`* ${text}`);
  }

  /** From now on these clients are asked what came since the last time. */
  watch(clients) {
    this.#watched.set(clients, null);
  }

  forget(clients) {
    this.#watched.delete(clients);
  }

  /** What the clients said last. */
  lastOf(clients) {
    return this.#watched.get(clients);
  }

  /** Ends the run: whoever waits gets this `Stop`. */
  stop(stop) {
    this.#reject(stop);
  }

  /** The result of `work`, unless the run is stopped meanwhile. */
  unlessStopped(work) {
    return Promise.race([work, this.stopped]);
  }

  /**
   * Waits until `measure(sample)` has come to `goal`. What hasn't moved for `stallS` seconds won't
   * come: then the `Stop` says what was reached and what `why()` knows.
   */
  async until(what, measure, goal, stallS, why = () => '') {
    let best = -Infinity;
    let movedAt = this.seconds;
    for (;;) {
      const value = this.last === undefined ? -Infinity : measure(this.last) ?? -Infinity;
      if (value >= goal) return;
      if (value !== best) [best, movedAt] = [value, this.seconds];
      if (this.seconds - movedAt > stallS) {
        const reached = Number.isFinite(best) ? whole(best) : 'nothing';
        throw new Stop(`${what}: ${reached} of ${whole(goal)}, and no more within ${stallS} s. `
          + `${await why()}`);
      }
      await this.unlessStopped(sleep(SAMPLE_MS / 5));
    }
  }

  async end() {
    this.#running = false;
    await this.#loop;
    sayNow('');
    this.#file.end();
    await once(this.#file, 'finish');
  }

  #write(line) {
    this.#file.write(`${JSON.stringify(rounded(line))}\n`);
  }

  async #run() {
    for (let due = Date.now(); this.#running; due += this.#everyMs) {
      await this.#pause(due);
      // A look that took longer than the pause is no reason for two at once.
      due = Math.max(due, Date.now() - this.#everyMs);
      const sample = await this.#look();
      this.samples.push(sample);
      this.#write(sample);
      this.#show(sample);
      this.#guard(sample);
    }
  }

  /** Waits until `due`, or until the end. */
  async #pause(due) {
    while (this.#running && Date.now() < due) await sleep(Math.min(SAMPLE_MS, due - Date.now()));
  }

  async #look() {
    const pids = { ...this.#server(), clients: pidsOf('clients'),
      publisher: [...pidsOf('publish'), ...pidsOf('floor'), ...pidsOf('graph')] };
    const kernel = kernelMemory();
    const t_s = this.seconds;
    const memory_bytes = { ...this.#memory(pids), kernel: kernel.all - this.#kernelBefore,
      slab: kernel.slab, page_tables: kernel.page_tables, tcp: kernel.tcp,
      available: kernel.available };
    return { t_s, phase: this.#phase, ...await this.#askClients(), memory_bytes,
      cpu: this.#processors(pids) };
  }

  async #askClients() {
    const ask = async (clients) => {
      try {
        return [clients, await clients.ask('interval')];
      } catch (error) {
        if (this.#watched.has(clients)) this.stop(new Stop(this.#withMemory(error.message)));
        return [clients, null];
      }
    };
    const answers = await Promise.all([...this.#watched.keys()].map(ask));
    const known = answers.filter(([clients, answer]) => answer && this.#watched.has(clients));
    for (const [clients, answer] of known) this.#watched.set(clients, answer);
    if (known.length === 0) return {};
    const all = known.map(([, answer]) => answer);
    const sum = (value) => all.reduce((total, answer) => total + value(answer), 0);
    const rate = ({ events, from_ns: from, to_ns: to }) => events / ((to - from) / NS_PER_S);
    const [most] = [...all].sort((a, b) => b.events - a.events);
    const { count, p50, p99, p99_9, max } = most.latency_ms;
    const seen = { connected: sum((answer) => answer.connected),
      lost: sum((answer) => answer.lost), deliveries_per_s: sum(rate) };
    return count > 0 ? { ...seen, latency_ms: { count, p50, p99, p99_9, max } } : seen;
  }

  #memory(pids) {
    const now = this.seconds;
    if (now - this.#pss.at > this.#pss.cost / PSS_SHARE_MAX) {
      const bytes = { brain: pssOf(pids.brain), edge: pssOf(pids.edge),
        clients: pssOf([...pids.clients, ...pids.publisher]) };
      this.#pss = { at: this.seconds, cost: this.seconds - now, bytes };
    }
    return this.#pss.bytes;
  }

  /** Processors' worth of time by part since the last look. */
  #processors(pids) {
    const [at, busy, of] = [this.seconds, busySeconds(), new Map()];
    const { at: before, busy: busyBefore, of: ofBefore } = this.#cpu;
    const used = Object.entries(pids).map(([part, list]) => [part, list.reduce((sum, pid) => {
      try {
        of.set(pid, cpuSeconds(pid));
      } catch {
        return sum; // it has just ended
      }
      // What a new process has used so far counts, but not what an old one did before the run.
      return sum + of.get(pid) - (ofBefore.get(pid) ?? (before === 0 ? of.get(pid) : 0));
    }, 0)]);
    this.#cpu = { at, busy, of };
    if (before === 0) return {};
    const rest = busy - busyBefore - used.reduce((sum, [, seconds]) => sum + seconds, 0);
    return Object.fromEntries([...used, ['rest', Math.max(0, rest)]]
      .map(([part, seconds]) => [part, seconds / (at - before)]));
  }

  #show({ connected = 0, deliveries_per_s: rate = 0, latency_ms: ms, memory_bytes: bytes, phase }) {
    const mb = (part) => `${part} ${whole(bytes[part] / 1e6)}`;
    const line = `${phase}: ${whole(connected)} connections, ${whole(rate)} deliveries/s`
      + `${ms ? `, p99 ${fixed(ms.p99, 1)} ms` : ''} · MB: `
      + `${['brain', 'edge', 'kernel', 'clients'].map(mb).join(', ')}, free ${
        whole(bytes.available / 1e6)}`;
    sayNow(line);
    if (!process.stderr.isTTY && Date.now() - this.#lineAt > LINE_MS) {
      this.#lineAt = Date.now();
      say(line);
    }
  }

  /** The sentence, and what memory was last seen to be used for. */
  #withMemory(sentence) {
    if (this.last === undefined) return sentence;
    const { memory_bytes: bytes } = this.last;
    const gb = (part) => `${part} ${fixed(bytes[part] / 1e9, 2)} GB`;
    return `${sentence}. Last seen in use: ${['brain', 'edge', 'clients', 'kernel'].map(gb)
      .join(', ')}; ${whole(bytes.available / 1e6)} MB were available.`;
  }

  #guard({ memory_bytes: bytes, connected = 0 }) {
    if (bytes.available > this.#keptBytes) return;
    if (!this.#running) return;
    this.#running = false;
    this.mark('memory ran out: the clients are ended');
    this.stop(new Stop(this.#withMemory(`The machine's memory ran out at ${whole(connected)} `
      + `connections: ${whole(this.#keptBytes / 1e6)} MB are kept so that the machine lives`)));
    killLoad();
  }
}
