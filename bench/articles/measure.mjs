// One server with so many connections, as the articles measured it: its memory while they connect
// and while messages come, sampled all the time, and processor time per delivery.
//
// A process may hold only so many descriptors, and an emulator has one table of them: of a server
// that is one process, as many run as the connections need, each with its share. Halley's edge has
// a worker for each share instead, in one process.

import { readFileSync } from 'node:fs';
import { sleep } from '../../test/lib/wait.mjs';
import { FOLLOWERS } from '../lib/crowd.mjs';
import { Clients } from '../lib/load.mjs';
import { say } from '../lib/say.mjs';
import { memory, window } from '../rivals/lib/turn.mjs';

const SETTLE_MS = 5_000;

/** Established connections of this machine with both ends on it. */
function connections() {
  const [, sockets] = /^TCP: inuse (\d+)/m.exec(readFileSync('/proc/net/sockstat', 'utf8'));
  return Math.floor(Number(sockets) / 2);
}

const sum = (values) => values.reduce((total, value) => total + value, 0);

class Samples {
  all = [];

  constructor(servers, everyMs) {
    this.before = connections();
    this.began = Date.now();
    this.servers = servers;
    this.running = this.#run(everyMs);
  }

  take() {
    const taken = this.servers.map(memory);
    const sample = { s: (Date.now() - this.began) / 1000, pss: sum(taken.map(({ pss }) => pss)),
      slab: taken[0].slab, connections: Math.max(0, connections() - this.before) };
    this.all.push(sample);
    return sample;
  }

  async #run(everyMs) {
    while (!this.isEnded) {
      this.take();
      await sleep(everyMs);
    }
  }

  async end() {
    this.isEnded = true;
    await this.running;
  }
}

/** The plans of the processes that hold `count` connections together. */
function shares(rival, count, plan) {
  const most = plan.descriptors - plan.spare;
  const parts = Math.ceil(count / most);
  if (rival.parts) return [{ ...plan, connections: count, workers: Math.max(plan.workers, parts) }];
  const groups = Math.ceil(count / FOLLOWERS / parts);
  return Array.from({ length: parts }, (_, n) => ({ ...plan,
    connections: FOLLOWERS * Math.min(groups, Math.floor(count / FOLLOWERS) - n * groups) }));
}

/** The figures of `rival` with `count` connections. */
export async function measure(name, rival, count, plan) {
  const plans = shares(rival, count, plan);
  const held = sum(plans.map((each) => each.connections));
  say(`${name}: ${held} connections in ${plans.length} processes`);
  const servers = [];
  const clients = [];
  let samples;
  try {
    for (const each of plans) servers.push(await rival.server.start(each));
    await sleep(SETTLE_MS);
    samples = new Samples(servers, plan.sample);
    const before = samples.take();
    for (const server of servers) await server.follow?.();
    for (const [n, each] of plans.entries()) {
      clients.push(new Clients(...servers[n].clients, '--connections', `${each.connections}`,
        '--group-size', `${FOLLOWERS}`, '--rate', `${Math.ceil(plan.connect / plans.length)}`));
    }
    const ready = await Promise.all(clients.map((each) => each.ask('ready')));
    const connected = sum(ready.map((each) => each.connected));
    if (connected !== held) throw new Error(`${name}: ${connected} of ${held} connected`);
    await sleep(SETTLE_MS);
    const idle = samples.take();
    say(`${name}: ${Math.round((idle.pss - before.pss) / held)} bytes a connection; deliveries`);
    const windows = await Promise.all(plans.map((each, n) => window(servers[n], clients[n], each,
      '--rate', `${Math.max(1, Math.round(plan.rate / plans.length))}`)));
    const delivered = sum(windows.map(({ received }) => received.events));
    await sleep(SETTLE_MS);
    const after = samples.take();
    return { name, title: rival.server.title, connections: held, processes: plans.length,
      before, idle, after, delivered, due: sum(windows.map(({ due }) => due)),
      cpu: sum(windows.map(({ cpu }) => cpu)),
      p99_ms: Math.max(...windows.map(({ received }) => received.latency_ms.p99)),
      samples: samples.all };
  } finally {
    await samples?.end();
    for (const each of clients) await each.quit();
    for (const server of servers) await server.stop();
  }
}
