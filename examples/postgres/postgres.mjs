// A PostgreSQL of its own: in a folder of its own, on a free port of this machine, as another user
// than root, with what Halley needs in its configuration. Where PostgreSQL runs already, leave this
// out and set postgres.url.

import { execFileSync, spawn } from 'node:child_process';
import { appendFileSync, chownSync, existsSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const START_MS_MAX = 30_000;
const INSTALLED = '/usr/lib/postgresql';

/** Debian keeps the server's programs out of PATH. */
function program(name) {
  const versions = existsSync(INSTALLED) ? readdirSync(INSTALLED).map(Number).filter(Boolean) : [];
  return versions.length > 0
    ? join(INSTALLED, String(Math.max(...versions)), 'bin', name) : name;
}

/** PostgreSQL refuses to run as root. */
function asUser(command, options) {
  const isRoot = process.getuid() === 0;
  const user = ['--reuid', 'postgres', '--regid', 'postgres', '--clear-groups'];
  return isRoot ? ['setpriv', [...user, command, ...options]] : [command, options];
}

async function freePort() {
  const server = createServer().listen(0, '127.0.0.1');
  await new Promise((listening) => { server.once('listening', listening); });
  const { port } = server.address();
  await new Promise((closed) => { server.close(closed); });
  return port;
}

export class Postgres {
  #server;
  #folder = mkdtempSync(join(tmpdir(), 'halley-postgres-'));

  /** Made and started; `settings` are lines of postgresql.conf. */
  static async start(settings = []) {
    const postgres = new Postgres();
    try {
      await postgres.#make(settings);
      await postgres.run();
      return postgres;
    } catch (error) {
      await postgres.stop();
      throw error.code === 'ENOENT' || error.status === 127
        ? new Error('PostgreSQL is not installed (Debian: apt install postgresql)') : error;
    }
  }

  get #data() {
    return join(this.#folder, 'data');
  }

  get url() {
    return `postgres://shop@127.0.0.1:${this.port}/postgres`;
  }

  get pid() {
    return this.#server.pid;
  }

  async #make(settings) {
    this.port = await freePort();
    if (process.getuid() === 0) {
      const uid = Number(execFileSync('id', ['-u', 'postgres'], { encoding: 'utf8' }));
      chownSync(this.#folder, uid, uid);
    }
    execFileSync(...asUser(program('initdb'), ['-D', this.#data, '-U', 'shop', '-E', 'UTF8',
      '--locale', 'C.UTF-8', '-A', 'trust', '-N']), { stdio: 'ignore', cwd: this.#folder });
    const lines = ["listen_addresses = '127.0.0.1'", `port = ${this.port}`,
      `unix_socket_directories = '${this.#folder}'`, 'wal_level = logical', ...settings];
    appendFileSync(join(this.#data, 'postgresql.conf'), `${lines.join('\n')}\n`);
  }

  async run() {
    const end = Date.now() + START_MS_MAX;
    for (;;) {
      // One that was killed leaves processes, which its successor waits for by giving up.
      if (this.#hasEnded) {
        this.#server = spawn(...asUser(program('postgres'), ['-D', this.#data]),
          { stdio: 'ignore', cwd: this.#folder });
      }
      await new Promise((resolve) => { setTimeout(resolve, 100); });
      try {
        this.sql('SELECT 1');
        return;
      } catch (error) {
        if (error.code === 'ENOENT' || Date.now() > end) throw error;
      }
    }
  }

  get #hasEnded() {
    const server = this.#server;
    return server === undefined || server.exitCode !== null || server.signalCode !== null;
  }

  /** What psql says to a script, a row on a line; in the script `:'name'` is a variable, quoted. */
  sql(script, variables = {}) {
    const set = Object.entries(variables).flatMap(([name, value]) => ['-v', `${name}=${value}`]);
    return execFileSync('psql', ['-X', '-q', '-A', '-t', '-v', 'ON_ERROR_STOP=1', ...set, this.url],
      { input: script, encoding: 'utf8', stdio: ['pipe', 'pipe', 'pipe'],
        maxBuffer: 256 * 1024 * 1024 }).trim();
  }

  /** `SIGKILL` ends it as a power cut does. */
  async end(signal = 'SIGINT') {
    const server = this.#server;
    if (this.#hasEnded) return;
    const gone = new Promise((exited) => { server.once('exit', exited); });
    server.kill(signal);
    await gone;
  }

  async stop() {
    await this.end();
    rmSync(this.#folder, { recursive: true, force: true });
  }
}
