// Starts the real release the way a person does (`./halley foreground`), on free ports and a
// directory of its own, and stops it by process id. A failed test shows the tail of its log.

import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { randomInt } from 'node:crypto';
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import {
  closeSync, mkdtempSync, openSync, readdirSync, readFileSync, readlinkSync, rmSync, writeFileSync,
} from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import nodeTest from 'node:test';
import { fileURLToPath } from 'node:url';
import { api } from './client.mjs';
import * as mochiweb from './mochiweb.mjs';
import { sleep, until } from './wait.mjs';

export const LAUNCHER = process.env.LAUNCHER
  ?? fileURLToPath(new URL('../../halley', import.meta.url));
const START_MS_MAX = 60_000;
// A brain gives an edge that hangs 10 s beyond the drain.
const STOP_MS_MAX = 60_000;
const LOG_TAIL_LINES = 25;
const COMMAND_MS_MAX = 60_000;
/** Of the launcher, and of a brain however far its start is. */
const COMMS = ['halley', 'bash', 'env', 'erlexec', 'beam.smp'];

const instances = new Set();

// Whatever happens to the test run, nothing of it stays behind.
process.on('exit', () => {
  for (const instance of instances) instance.killAll();
});

// Below those that the system gives to clients (32768 and up), so that none takes one meanwhile.
const [PORT_MIN, PORT_MAX] = [10_000, 32_000];

/** A TCP port that is free, and that no other test process is given while this one lives. */
export async function freePort() {
  for (;;) {
    const port = randomInt(PORT_MIN, PORT_MAX + 1);
    // The same number of UDP is the claim: its owner needs it for nothing, and it ends with us.
    const claim = createSocket('udp4').unref();
    const server = createServer();
    try {
      claim.bind({ port, address: '127.0.0.1', exclusive: true });
      await once(claim, 'listening');
      server.listen(port, '127.0.0.1');
      await once(server, 'listening');
      await new Promise((closed) => { server.close(closed); });
      return port;
    } catch (error) {
      claim.close();
      if (error.code !== 'EADDRINUSE') throw error;
    }
  }
}

function readProc(pid, file) {
  try {
    return readFileSync(`/proc/${pid}/${file}`, 'utf8');
  } catch {
    return '';
  }
}

/** Processes of that name which carry `mark` in their command line or environment. */
function findProcesses(name, mark) {
  return readdirSync('/proc')
    .filter((entry) => /^\d+$/.test(entry))
    .filter((pid) => readProc(pid, 'comm').trim() === name)
    .filter((pid) => !/^State:\s+Z/m.test(readProc(pid, 'status')))
    .filter((pid) => (readProc(pid, 'cmdline') + readProc(pid, 'environ')).includes(mark))
    .map(Number);
}

/** The TCP ports that a process listens on. */
export function listeningPorts(pid) {
  // Each worker of the edge has a descriptor table of its own, so ask every thread.
  const folders = readdirSync(`/proc/${pid}/task`).map((task) => `/proc/${pid}/task/${task}/fd`);
  const links = folders.flatMap((folder) => readdirSync(folder).map((fd) => {
    try {
      return readlinkSync(join(folder, fd));
    } catch {
      return ''; // closed in the meantime
    }
  }));
  const inodes = new Set(links.map((link) => /^socket:\[(\d+)\]$/.exec(link)?.[1]));
  const rows = ['tcp', 'tcp6'].flatMap((table) => readProc('net', table).split('\n').slice(1));
  const LISTEN = '0A';
  return rows.map((row) => row.trim().split(/\s+/))
    .filter((columns) => columns[3] === LISTEN && inodes.has(columns[9]))
    .map((columns) => parseInt(columns[1].split(':')[1], 16));
}

/** Whether the server that listens on `port` still has its end of a connection from `from`. */
export function isHeld(port, from) {
  const hex = (number) => `:${number.toString(16).toUpperCase().padStart(4, '0')}`;
  return readProc('net', 'tcp').split('\n').map((row) => row.trim().split(/\s+/))
    .some(([, own, other]) => own?.endsWith(hex(port)) && other.endsWith(hex(from)));
}

export function isAlive(pid) {
  const status = readProc(pid, 'status');
  return status !== '' && !/^State:\s+Z/m.test(status);
}

export function parentOf(pid) {
  return Number(/^PPid:\s+(\d+)/m.exec(readProc(pid, 'status'))?.[1]);
}

/** Kills by process id; one that is gone already is fine. */
export function kill(pid, signal) {
  try {
    process.kill(pid, signal);
  } catch (error) {
    if (error.code !== 'ESRCH') throw error;
  }
}

/** SIGSTOP, and waits until no thread runs any more: some do for a while after the signal. */
export async function freeze(pid) {
  kill(pid, 'SIGSTOP');
  const states = () => readdirSync(`/proc/${pid}/task`)
    .map((task) => /^State:\s+(\S)/m.exec(readProc(pid, `task/${task}/status`))?.[1]);
  await until(`all threads of ${pid} have stopped`, () => states().every((state) => state === 'T'));
}

class Halley {
  /** A descriptor that its log goes to; without one it is in `log`. */
  output;
  /** What the launcher is started by, such as `unshare`, and each command too. */
  within = [];
  /** What there is in the environment beside `settings`. */
  environment = process.env;
  #child = null;
  #log = '';
  #exit = null;

  constructor({ publicPort, apiPort, settings, conf }) {
    this.folder = mkdtempSync(join(tmpdir(), 'halley-system-'));
    this.publicPort = publicPort;
    this.apiPort = apiPort;
    this.conf = conf;
    this.settings = {
      HALLEY_PUBLIC_LISTEN: `127.0.0.1:${publicPort}`,
      HALLEY_API_LISTEN: `127.0.0.1:${apiPort}`,
      HALLEY_DATA_DIR: join(this.folder, 'data'),
      HALLEY_NODE_NAME: `halley-${publicPort}@127.0.0.1`,
      HALLEY_EDGE_WORKERS: '2',
      ...settings,
    };
    instances.add(this);
  }

  #scheme(listener) {
    return this.settings[`HALLEY_${listener}_TLS_CERTIFICATE`] === undefined ? 'http' : 'https';
  }

  get publicUrl() {
    return `${this.#scheme('PUBLIC')}://127.0.0.1:${this.publicPort}`;
  }

  get apiUrl() {
    return `${this.#scheme('API')}://127.0.0.1:${this.apiPort}`;
  }

  get log() {
    return this.#log;
  }

  get logTail() {
    return this.#log.trimEnd().split('\n').slice(-LOG_TAIL_LINES).join('\n');
  }

  /** Starts the launcher; says nothing yet about whether Halley runs. */
  spawn() {
    if (this.conf !== undefined) writeFileSync(join(this.folder, 'halley.conf'), this.conf);
    const env = this.#env();
    this.#exit = null;
    const output = this.output ?? 'pipe';
    const [program, ...words] = [...this.within,
      ...(mochiweb.isMochiweb ? mochiweb.command(this) : [LAUNCHER, 'foreground'])];
    this.#child = spawn(program, words, {
      cwd: this.folder, env, stdio: ['ignore', output, output],
    });
    this.#child.once('close', (code, signal) => { this.#exit = { code, signal }; });
    this.stderr = '';
    if (output !== 'pipe') return this;
    this.#child.stdout.on('data', (data) => { this.#log += data; });
    this.#child.stderr.on('data', (data) => { this.#log += data; this.stderr += data; });
    // A test that failed half-way must not keep the run alive; the exit hook clears up.
    for (const handle of [this.#child, this.#child.stdout, this.#child.stderr]) handle.unref();
    return this;
  }

  #env() {
    return Object.fromEntries(
      Object.entries({ ...this.environment, ...this.settings,
        ...(mochiweb.isMochiweb ? mochiweb.environment : {}) })
        .filter(([, value]) => value !== null),
    );
  }

  /** Another command of the launcher, with the same configuration: `{code, stdout, stderr}`. */
  command(...options) {
    const [program, ...words] = [...this.within, LAUNCHER, ...options];
    return new Promise((resolve) => {
      execFile(program, words, { cwd: this.folder, env: this.#env(), timeout: COMMAND_MS_MAX },
        (error, stdout, stderr) => resolve({ code: error ? error.code ?? -1 : 0, stdout, stderr }));
    });
  }

  /** The same, killed (SIGKILL) once `moment()` has resolved. Gives whether it ran until then. */
  async commandKilled(moment, ...options) {
    const child = spawn(LAUNCHER, options, { cwd: this.folder, env: this.#env(), stdio: 'ignore' });
    const ended = once(child, 'close').then(() => false);
    const isKilled = await Promise.race([ended, moment().then(() => child.kill('SIGKILL'))]);
    await ended;
    return isKilled;
  }

  async start() {
    this.spawn();
    await this.ready();
    return this;
  }

  async ready() {
    try {
      await until('Halley is ready', async () => {
        if (this.#exit) throw new Error(`exited with ${JSON.stringify(this.#exit)}`);
        // Without an edge it is never ready for one.
        const path = mochiweb.isMochiweb ? '/healthz' : '/readyz';
        return (await api(this, 'GET', path)).status === 200;
      }, START_MS_MAX);
    } catch (error) {
      const tail = this.logTail;
      this.killProcesses();
      throw new Error(`${error.message}\nthe log's tail:\n${tail}`);
    }
  }

  get launcherPid() {
    return this.#child.pid;
  }

  /** The one `beam.smp` of this instance. */
  brainPid() {
    const pids = findProcesses('beam.smp', this.folder);
    assert.equal(pids.length, 1, `one brain, but found ${pids}`);
    return pids[0];
  }

  /** The one `halley-edge` of this instance. */
  edgePid() {
    const pids = this.edgePids();
    assert.equal(pids.length, 1, `one edge, but found ${pids}`);
    return pids[0];
  }

  edgePids() {
    return findProcesses('halley-edge', this.folder);
  }

  get hasExited() {
    return this.#exit !== null;
  }

  /** How the launcher ended: `{code, signal}`. */
  exited(ms = STOP_MS_MAX) {
    return until('the launcher has exited', () => this.#exit, ms);
  }

  async stop(signal = 'SIGTERM') {
    const exit = await this.terminate(signal);
    this.remove();
    return exit;
  }

  /** Stops brain and edge and keeps the folder, so that it can be started again. */
  async terminate(signal = 'SIGTERM') {
    if (!this.#exit) {
      this.#child.kill(signal);
      await this.exited();
    }
    const exit = this.#exit;
    await until('the edge has stopped', () => this.edgePids().length === 0);
    return exit;
  }

  killAll() {
    this.killProcesses();
    this.remove();
  }

  killProcesses() {
    // First who would start another.
    if (this.#child && !this.#exit) kill(this.#child.pid, 'SIGKILL');
    const comms = [...COMMS, 'halley-edge'];
    const pids = comms.flatMap((comm) => findProcesses(comm, this.folder));
    for (const pid of pids) kill(pid, 'SIGKILL');
  }

  /** The brain dies by SIGKILL, and the launcher, which would start another; the edge stays. */
  async killBrain() {
    kill(this.#child.pid, 'SIGSTOP');
    kill(this.brainPid(), 'SIGKILL');
    kill(this.#child.pid, 'SIGKILL');
    await this.exited();
  }

  /** The brain dies by SIGKILL, however far its start is; the edge stays. */
  async killStarting() {
    if (!this.#exit) kill(this.#child.pid, 'SIGKILL');
    await until('nothing of the brain is left', () => {
      const pids = COMMS.flatMap((comm) => findProcesses(comm, this.folder));
      for (const pid of pids) kill(pid, 'SIGKILL');
      return pids.length === 0 && this.#exit;
    });
  }

  remove() {
    rmSync(this.folder, { recursive: true, force: true, maxRetries: 3 });
    instances.delete(this);
  }
}

/** A Halley that is not started yet. `settings` go to its environment; `null` removes one. */
export async function prepare({ settings = {}, conf } = {}) {
  const [publicPort, apiPort] = [await freePort(), await freePort()];
  return new Halley({ publicPort, apiPort, settings, conf });
}

/** A Halley that answers. */
export async function start(options) {
  return (await prepare(options)).start();
}

/** A test whose failure shows the tail of each running instance's log. */
export function test(name, body) {
  if (!mochiweb.runs(name)) return;
  nodeTest(name, async (context) => {
    try {
      await body(context);
    } catch (error) {
      await sleep(50);
      for (const instance of instances) {
        error.message += `\n  the log's tail (${instance.folder}):\n${instance.logTail}`;
      }
      error.stack = `${error.message}\n${String(error.stack).split('\n').slice(1).join('\n')}`;
      throw error;
    }
  });
}

/** Writes a file into the scratch folder of an instance and gives its path. */
export function scratchFile(halley, name, content) {
  const path = join(halley.folder, name);
  const file = openSync(path, 'w');
  closeSync(file);
  writeFileSync(path, content);
  return path;
}
