// The price of an online user with its follows for the brain: a graph is imported, all log in, and
// the parts of the brain's memory are read. See docs/internals/memory.md.
//
// Sessions come over links, as always. Those of `--connections` are streams of clients at the edge;
// the others are opened by workers without connections, which speak the same protocol, because a
// million sockets say nothing more about the brain.

import { execFileSync, spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { sleep, until } from '../../test/lib/wait.mjs';
import { importGraph } from './graph.mjs';
import { Clients, load } from './load.mjs';
import { pssBytes } from './process.mjs';
import { say } from './say.mjs';
import { fixed, whole } from './words.mjs';

/** Longer than the brain waits before it writes its checkpoint. */
const SETTLE_MS = 5_000;
/** With the edge's two, as many links as a million connections need at 20,000 descriptors each. */
const SYNTHETIC_WORKERS = 54;
const EVENTS_PER_S = 2_000;
const LOGIN_MS_MAX = 100_000;
const source = (name) => fileURLToPath(new URL(`../memory/${name}`, import.meta.url));

/** The module that the brain is asked through, compiled, and where it listens. */
class Probe {
  constructor() {
    // Not halley-something: the code server would take the directory for the application.
    this.folder = mkdtempSync(join(tmpdir(), 'memory-probe-'));
    this.path = join(this.folder, 'probe.sock');
    execFileSync('erlc', ['-o', this.folder, source('halley_bench_probe.erl')]);
  }

  get flags() {
    return `-pa ${this.folder} -run halley_bench_probe start ${this.path}`;
  }

  async ask(line) {
    const socket = connect(this.path);
    socket.write(`${line}\n`);
    try {
      for await (const answer of createInterface({ input: socket })) return JSON.parse(answer);
    } finally {
      socket.destroy();
    }
    throw new Error(`the probe says nothing to "${line}"`);
  }

  remove() {
    rmSync(this.folder, { recursive: true, force: true });
  }
}

let probe;

/** What this part's Halley is started with. */
export function brainMemorySettings() {
  probe = new Probe();
  return { ERL_ZFLAGS: `${process.env.ERL_ZFLAGS ?? ''} ${probe.flags}`.trim() };
}

export async function brainMemory(halley, plan, folder) {
  const samples = {};
  const sample = async (name) => {
    await sleep(SETTLE_MS);
    const pss = pssBytes(halley.brainPid());
    samples[name] = { pss, ...await probe.ask('report') };
    say(`memory: ${name}: ${whole(pss / 1e6)} MB`);
  };
  let clients;
  let workers;
  try {
    await sample('empty');
    await importGraph(halley, plan, folder);
    await sample('follows');
    const real = Math.min(plan.connections, plan.users);
    clients = new Clients('--url', halley.publicUrl, '--connections', `${real}`);
    await clients.ask('ready');
    workers = await logIn(real + 1, plan.users - real);
    await sample('online');
    await load('publish', '--url', halley.apiUrl, '--rate', `${EVENTS_PER_S}`,
      '--seconds', `${plan.seconds}`, '--subjects', `graph:${plan.users}:${plan.degree}:1`);
    await sample('events');
  } finally {
    await clients?.quit();
    workers?.kill();
    probe.remove();
  }
  return samples;
}

/** Opens a session for each of `count` users, none with a socket; gives the process of them. */
async function logIn(first, count) {
  if (count <= 0) return undefined;
  const libraries = process.env.ERL_LIBS
    ?? fileURLToPath(new URL('../../_build/default/lib', import.meta.url));
  const child = spawn('escript', [source('workers.escript'), probe.folder,
    `${SYNTHETIC_WORKERS}`, `${first}`, `${count}`],
  { stdio: ['pipe', 'pipe', 'inherit'], env: { ...process.env, ERL_LIBS: libraries } });
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const { done } = await lines.next();
  if (done) throw new Error('the synthetic workers ended');
  for (let worker = 0; worker < SYNTHETIC_WORKERS; worker += 1) {
    await probe.ask(`link ${join(probe.folder, `${worker}.sock`)}`);
  }
  await until('everybody is online',
    async () => (await probe.ask('online')).sessions >= first - 1 + count, LOGIN_MS_MAX);
  return child;
}

export function brainMemoryRows(plan, samples) {
  const { empty, follows, online, events } = samples;
  const users = online.online.users;
  const each = (now, before, of) => fixed((of(now) - of(before)) / users, 0);
  const kind = (name) => (one) => one.memory[name];
  const both = (of) => [each(follows, empty, of), each(online, follows, of)].join(' + ');
  const all = (of) => Object.values(of.carriers).reduce((sum, one) => sum + one.carriers, 0);
  return [
    ['**The brain\'s memory**', `${whole(users)} users online, `
      + `${whole(online.follows)} follows`, ''],
    ['brain memory (PSS) in all: empty, with follows, everybody online, after events',
      `${[empty, follows, online, events].map((one) => whole(one.pss / 1e6)).join(', ')} MB`, ''],
    ['**per online user (PSS), everything included**',
      `${whole(online.pss / users)} bytes`, '≤ 600'],
    ['the same without the empty brain: for follows and ids, for being online',
      both((one) => one.pss), ''],
    ['the same, after events', `${whole(events.pss / users)} bytes`, ''],
    ['in use (Erlang, total): for follows and ids, for being online', both(kind('total')), ''],
    ...['ets', 'binary', 'processes'].map((name) => [`of it ${name}`, both(kind(name)), '']),
    ['taken from the system (carriers)', both(all), ''],
  ];
}
