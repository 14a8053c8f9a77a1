// halley-load as a child process.

import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { sleep } from '../../test/lib/wait.mjs';

export const PROGRAM = process.env.LOAD_PROGRAM
  ?? fileURLToPath(new URL('../../edge/target/release/halley-load', import.meta.url));
/** Between two reports of clients that are waited for. */
const LOOK_MS = 50;
/** What is kept of what clients say on stderr. */
const STDERR_CHARS = 2_000;

/** Child and subcommand of what runs. */
const running = new Map();

// Whatever happens to the benchmark, its load ends with it.
process.on('exit', () => {
  killLoad();
});

/** Ends all load at once. */
export function killLoad() {
  for (const child of running.keys()) child.kill('SIGKILL');
}

/** Process ids of a subcommand's processes. */
export const pidsOf = (subcommand) =>
  [...running].filter(([, name]) => name === subcommand).map(([child]) => child.pid);

function start(args, stdio) {
  const child = spawn(PROGRAM, args, { stdio });
  running.set(child, args[0]);
  const closed = new Promise((resolve) => { child.once('close', resolve); });
  closed.then(() => running.delete(child));
  return { child, closed };
}

/** Starts a subcommand. `result` is what its `--json` says; `stop` ends it before its time. */
export function begin(subcommand, ...args) {
  const folder = mkdtempSync(join(tmpdir(), 'halley-bench-'));
  const json = join(folder, 'result.json');
  const { child, closed } = start([subcommand, ...args, '--json', json],
    ['ignore', 'ignore', 'pipe']);
  let stderr = '';
  child.stderr.on('data', (data) => { stderr += data; });
  const result = closed.then((code) => {
    if (code !== 0) throw new Error(`halley-load ${subcommand}: exit ${code}: ${stderr}`);
    return JSON.parse(readFileSync(json, 'utf8'));
  }).finally(() => rmSync(folder, { recursive: true, force: true }));
  const stop = () => {
    child.kill('SIGTERM');
    return result;
  };
  return { result, stop };
}

/** Runs a subcommand to its end and gives what its `--json` says. */
export const load = (subcommand, ...args) => begin(subcommand, ...args).result;

/** `halley-load clients --control`: connections that are held while other things happen. */
export class Clients {
  #closed;
  #stderr = '';

  constructor(...args) {
    const { child, closed } = start(['clients', '--control', ...args], ['pipe', 'pipe', 'pipe']);
    this.child = child;
    child.stderr.on('data', (data) => {
      this.#stderr = (this.#stderr + data).slice(-STDERR_CHARS);
    });
    // That they are gone shows at the end of their answers, with the reason.
    child.stdin.on('error', () => {});
    this.#closed = closed;
    this.answers = createInterface({ input: this.child.stdout })[Symbol.asyncIterator]();
  }

  async ask(command) {
    this.child.stdin.write(`${command}\n`);
    const { value, done } = await this.answers.next();
    if (done) throw new Error(`the clients ended at "${command}": ${this.#stderr}`);
    const answer = JSON.parse(value);
    if (answer.error) throw new Error(`the clients can't: ${answer.error}`);
    return answer;
  }

  /** The first report that is as wanted, or the last one when the time is up. */
  async until(wanted, seconds) {
    const end = Date.now() + seconds * 1000;
    for (;;) {
      const report = await this.ask('report');
      if (wanted(report) || Date.now() > end) return report;
      await sleep(LOOK_MS);
    }
  }

  async quit() {
    this.child.stdin.end('quit\n');
    await this.#closed;
  }
}
