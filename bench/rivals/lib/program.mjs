// A server under test: started on free ports in a scratch directory of its own, known by process
// id with all its children, and ended by it. Whatever happens to the benchmark, nothing stays.

import { execFileSync, spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { isAlive, kill } from '../../../test/lib/halley.mjs';
import { until } from '../../../test/lib/wait.mjs';

const START_MS_MAX = 20_000;
const STOP_MS_MAX = 10_000;
/** What is kept of what a server says. */
const LOG_CHARS = 2_000;

/** Connections of a server that aren't streams: publishers, above all. */
export const CONNECTIONS_SPARE = 1_000;

const running = new Set();

process.on('exit', () => {
  for (const program of running) program.kill();
});

/** The process and all that descend from it. */
export function family(pid) {
  let children = '';
  try {
    children = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8');
  } catch {
    return []; // it has ended
  }
  return [pid, ...children.trim().split(' ').filter(Boolean).map(Number).flatMap(family)];
}

function listens(port) {
  return new Promise((resolve) => {
    const socket = connect({ port, host: '127.0.0.1' });
    const end = (answer) => {
      socket.destroy();
      resolve(answer);
    };
    socket.once('connect', () => end(true));
    socket.once('error', () => end(false));
  });
}

export const url = (port) => `http://127.0.0.1:${port}`;

/** A scratch directory. */
export const scratch = () => mkdtempSync(join(tmpdir(), 'halley-rival-'));

/** Writes `template` with each `@WORD@` replaced to `path`. */
export function fill(template, words, path) {
  const text = readFileSync(template, 'utf8').replace(/@([A-Z_]+)@/g, (_, word) => words[word]);
  writeFileSync(path, text);
  return path;
}

/** Runs something that prepares a server, to its end; its output is told if it fails. */
export function prepare(command, ...args) {
  execFileSync(command, args, { stdio: ['ignore', 'pipe', 'pipe'] });
}

export class Program {
  #log = '';
  #exit = null;

  constructor(folder, command, args, env = {}) {
    this.folder = folder;
    this.child = spawn(command, args, {
      cwd: folder, env: { ...process.env, ...env }, stdio: ['ignore', 'pipe', 'pipe'],
    });
    const hear = (data) => { this.#log = (this.#log + data).slice(-LOG_CHARS); };
    this.child.stdout.on('data', hear);
    this.child.stderr.on('data', hear);
    this.child.once('error', (error) => { this.#exit = error.message; });
    this.child.once('exit', (code, signal) => { this.#exit = `${code ?? signal}`; });
    running.add(this);
  }

  /** All its processes, from the first to the last generation. */
  pids() {
    if (this.#exit !== null) throw new Error(`it ended (${this.#exit}): ${this.#log}`);
    return family(this.child.pid);
  }

  /** Waits until it listens on these ports. */
  async ready(...ports) {
    try {
      for (const port of ports) {
        await until(`port ${port}`, () => {
          if (this.#exit !== null) return true;
          return listens(port);
        }, START_MS_MAX);
      }
      this.pids();
    } catch (error) {
      await this.stop();
      throw new Error(`${error.message} ${this.#log}`);
    }
    return this;
  }

  kill() {
    // The id of one that ended may be somebody else's by now.
    if (this.#exit === null) {
      for (const pid of family(this.child.pid)) kill(pid, 'SIGKILL');
    }
    running.delete(this);
    rmSync(this.folder, { recursive: true, force: true, maxRetries: 3 });
  }

  /** Ends it, by force where it doesn't go by itself in so long. */
  async stop(patienceMs = STOP_MS_MAX) {
    if (this.#exit === null) {
      const pids = family(this.child.pid);
      const ended = () => until('its end', () => !pids.some(isAlive), patienceMs);
      kill(this.child.pid, 'SIGTERM');
      await ended().catch(() => {
        for (const pid of pids) kill(pid, 'SIGKILL');
        return ended();
      });
    }
    this.kill();
  }
}
