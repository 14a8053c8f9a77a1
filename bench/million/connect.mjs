// The price of a few connections, the graph, all connections, and the memory that they take.

import { sleep } from '../../test/lib/wait.mjs';
import { FOLLOWERS } from '../lib/crowd.mjs';
import { importGraph } from '../lib/graph.mjs';
import { Clients, pidsOf } from '../lib/load.mjs';
import { fixed, whole } from '../lib/words.mjs';
import { KERNEL_BYTES_MIN, needs } from './check.mjs';
import { availableBytes } from './facts.mjs';
import { kernelMemory, pssOf, slabGrowth, slabs } from './memory.mjs';

/** Some fifty client threads on a few cores would wake for each message of theirs otherwise. */
const PAUSE_MS = 4;
/** Of each session with `--subscribed`, each shared by as many sessions as FOLLOWERS. */
const SUBSCRIPTIONS = 3;
/** Enough that slabs and tables have grown by more than their steps. */
const PROBE_CONNECTIONS = 4_000;
const PROBE_SETTLE_MS = 1_000;
/** Connects that make no headway for so long won't. */
const STALL_S = 30;

/** Starts clients for users 1..N, or for those of a file; subscribed, if the plan says so. */
export function connectClients(stage, connections, ...more) {
  return new Clients('--url', stage.halley.publicUrl, '--connections', `${connections}`,
    '--sched-batch', '--pause-ms', `${PAUSE_MS}`, ...stage.plan.subscribed
      ? ['--subscribe', `${SUBSCRIPTIONS}`, '--group-size', `${FOLLOWERS}`] : [], ...more);
}

/** Memory by part with so many connections. */
async function holding(stage, count) {
  const clients = connectClients(stage, count, '--threads', '1');
  await clients.ask('ready');
  await sleep(PROBE_SETTLE_MS);
  const held = { edge: pssOf(stage.pids.edge), clients: pssOf(pidsOf('clients')),
    kernel: kernelMemory().all };
  await clients.quit();
  return held;
}

/** Measures what a connection costs, and says whether all will fit. */
export async function probe(stage) {
  const { plan } = stage;
  const count = Math.min(PROBE_CONNECTIONS, plan.connections);
  // Few and many of them: the difference is the connections', without what each program has anyway.
  const few = Math.ceil(count / 10);
  const [less, more] = [await holding(stage, few), await holding(stage, count)];
  const each = Object.fromEntries(Object.entries(more).map(([part, bytes]) =>
    [part, Math.max(0, bytes - less[part]) / (count - few)]));
  each.kernel = Math.max(each.kernel, KERNEL_BYTES_MIN);
  const needed = needs(plan.connections, each);
  const available = availableBytes();
  const gb = (bytes) => `${fixed(bytes / 1e9, 2)} GB`;
  stage.say(`${count} connections: ${['edge', 'clients', 'kernel'].map((part) =>
    `${part} ${whole(each[part])}`).join(', ')} bytes each`);
  const parts = ['brain', 'edge', 'clients', 'kernel'].map((part) => `${part} ${gb(needed[part])}`);
  stage.say(`${whole(plan.connections)} will need about ${gb(needed.all)} (${parts.join(', ')}); `
    + `${gb(available)} are available`);
  if (needed.all > available) {
    stage.say(`that is too little: about ${whole(available / needed.per_connection)} connections `
      + 'will fit. It is tried all the same, and ends before memory does.');
  }
  return { connections: count, bytes_each: each, needed, available };
}

/** The graph of all users, through POST /v1/follows. */
export async function graph(stage) {
  const { plan, halley, recorder, folder } = stage;
  const graphPlan = { users: plan.connections, degree: plan.degree };
  const made = await recorder.unlessStopped(importGraph(halley, graphPlan, folder));
  recorder.mark(`${whole(made.imported.answer.added)} follows imported`);
  return { ...made, brain_bytes: pssOf(stage.pids.brain) };
}

/** All connect; gives the clients' report and the memory before and after. */
export async function connect(stage) {
  const { plan, recorder } = stage;
  const before = { ...await stage.memoryNow([]), slabs: slabs() };
  recorder.mark(`${whole(plan.connections)} clients begin to connect`);
  stage.clients = connectClients(stage, plan.connections, '--reconnect');
  recorder.watch(stage.clients);
  const clients = stage.clients;
  const connected = () => recorder.lastOf(clients)?.connected;
  const why = async () => {
    const problem = recorder.lastOf(clients)?.first_problem;
    return `${problem ? `The first client that failed says: ${problem}. ` : ''}`
      + `${await stage.symptoms()}`;
  };
  await recorder.until('connections', connected, plan.connections, STALL_S, why);
  const report = await clients.ask('report');
  recorder.mark(`all connected, ${whole(report.connects_per_s)} per second`);
  const after = await stage.memoryNow([clients.child.pid]);
  const grown = slabGrowth(before.slabs, slabs(), plan.connections);
  delete before.slabs;
  return { report, memory: { before, after }, slab_bytes_per_connection: grown };
}
