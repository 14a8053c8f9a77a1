// The faults of a Halley with a PostgreSQL, each until the server that it hit runs again.

import { execFile } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { promisify } from 'node:util';
import { kill } from '../../lib/halley.mjs';
import { sleep, until } from '../../lib/wait.mjs';
import { killProcess } from './processes.mjs';

/** Halley leaves a server that is silent for 30 s: some of these are longer. */
const STALL_MS = [200, 4_000];
const LONG_STALL_MS = 35_000;
const LONG_STALL_CHANCE = 0.04;

const PROCESS_MS = 1_000;

const TERMINATE = 'SELECT pg_terminate_backend(pid) FROM pg_stat_activity '
  + "WHERE application_name = 'halley'";

const stallMs = (random) =>
  (random.chance(LONG_STALL_CHANCE) ? LONG_STALL_MS : random.int(...STALL_MS));

/** The processes of a PostgreSQL: the one that was started, and its children. */
function processes(pid) {
  const parentOf = (each) => {
    try {
      return Number(/^PPid:\s+(\d+)/m.exec(readFileSync(`/proc/${each}/status`, 'utf8'))?.[1]);
    } catch {
      return 0;
    }
  };
  return [pid, ...readdirSync('/proc').filter((entry) => /^\d+$/.test(entry)).map(Number)
    .filter((each) => parentOf(each) === pid)];
}

export const FAULTS = {
  /** kill -9; the launcher's next start finds the edge with its connections. */
  async brain({ halley }) {
    await halley.killBrain();
    await halley.start();
  },

  /** One process of what speaks with PostgreSQL; too many of them in a short time end the brain. */
  async process({ halley, killer }) {
    await killProcess(killer, 'halley_postgres');
    await sleep(PROCESS_MS);
    if (halley.hasExited) await halley.start();
    await halley.ready();
  },

  async edge({ halley }) {
    const pid = halley.edgePid();
    kill(pid, 'SIGKILL');
    await until('another edge', () => halley.edgePids().some((each) => each !== pid));
    await halley.ready();
  },

  async postgres({ postgres }) {
    for (const pid of processes(postgres.pid)) kill(pid, 'SIGKILL');
    await postgres.end('SIGKILL');
    await postgres.run();
  },

  async cut({ gate, postgres, random }) {
    if (random.chance(0.5)) gate.cut();
    else {
      await promisify(execFile)('psql', ['-X', '-q', postgres.url, '-c', TERMINATE]);
    }
  },

  /** SIGSTOP of the server: its kernel still answers for its sockets. */
  async stop({ postgres, random }) {
    const pids = processes(postgres.pid);
    for (const pid of pids) kill(pid, 'SIGSTOP');
    await sleep(stallMs(random));
    for (const pid of pids) kill(pid, 'SIGCONT');
  },

  /** Something on the way stands still, and may be gone when it is asked again. */
  async stand({ gate, random }) {
    gate.stand();
    await sleep(stallMs(random));
    if (random.chance(0.3)) gate.cut();
    gate.go();
  },
};
