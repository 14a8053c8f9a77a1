// The price of an idle connection: the edge's memory before the first came, after all have
// connected, after a storm of deliveries, and when all have left; and the kernel's share apart.

import { join } from 'node:path';
import { readFileSync } from 'node:fs';
import { sleep } from '../../test/lib/wait.mjs';
import { FOLLOWERS, metrics } from './crowd.mjs';
import { MOST, post } from './groups.mjs';
import { Clients, load } from './load.mjs';
import { cpuSeconds, pssBytes } from './process.mjs';
import { say } from './say.mjs';
import { address, spoken } from './tls.mjs';
import { fixed, whole } from './words.mjs';

/** Longer than the wheel's horizon, and than two walks of the sweep, after which all is trimmed. */
const REST_MS = 22_000;
const SOON_MS = 3_000;
/** Longer than the time between two STATS of the edge. */
const STATS_MS = 2_500;
/** Not `--seconds`, which is for what is measured by rates. */
const STORM_SECONDS = 8;

export async function idle(halley, plan, folder) {
  const count = Math.ceil(plan.connections / FOLLOWERS);
  const file = join(folder, 'groups.txt');
  await load('graph', '--groups', `${count}`, '--size', `${FOLLOWERS}`, '--out', file);
  await post(`${halley.apiUrl}/v1/follows`, readFileSync(file));
  const samples = {};
  const sample = async (name, ms) => {
    await sleep(ms);
    samples[name] = { edge: parts(halley.edgePid()), brain: pssBytes(halley.brainPid()),
      kernel: kernelBytes() };
    say(`idle: ${name}: edge ${fixed(samples[name].edge.pss / 1e6)} MB`);
  };
  await sample('empty', SOON_MS);
  const before = cpuSeconds(halley.edgePid());
  const clients = new Clients(...address(halley, plan), '--connections', `${plan.connections}`,
    '--threads', `${plan.workers}`);
  const connected = await clients.ask('ready');
  const connectCpu = cpuSeconds(halley.edgePid()) - before;
  say(`idle: ${connected.connected} connected, ${whole(connected.connects_per_s)}/s`);
  await sample('connected', SOON_MS);
  await sample('rested', REST_MS);
  await clients.ask('mark storm');
  const published = await load('publish', '--url', halley.apiUrl, '--closed',
    '--connections', `${MOST.connections}`, '--batch', `${MOST.batch}`,
    '--seconds', `${STORM_SECONDS}`, '--subjects', `groups:${count}`);
  await sleep(SOON_MS);
  const received = await clients.ask('report');
  await sample('stormed', 0);
  await sample('rested again', REST_MS);
  const back = plan.tls ? await comeBack(halley, clients, plan) : {};
  await clients.quit();
  await sample('left', REST_MS);
  return { connected, connect_cpu_s: connectCpu, ...back, published, received, samples };
}

/** All leave and come back: by their tickets, with `--resume`. */
async function comeBack(halley, clients, plan) {
  const handshakes = async () => {
    const all = await metrics(halley);
    const sum = (name) => Object.entries(all)
      .filter(([key]) => key.startsWith(`halley_edge_${name}`))
      .reduce((total, [, value]) => total + value, 0);
    return { all: sum('tls_handshakes_total'), resumed: sum('tls_resumed_total') };
  };
  await sleep(STATS_MS);
  const before = { ...await handshakes(), cpu: cpuSeconds(halley.edgePid()) };
  await clients.ask('mark back');
  await clients.ask('return strangers');
  const { connected, connects_per_s: perS } = await clients.until(
    (report) => report.connected === plan.connections, plan.patience);
  const cpu = cpuSeconds(halley.edgePid()) - before.cpu;
  await sleep(STATS_MS);
  const after = await handshakes();
  return { back: { connected, connects_per_s: perS, cpu_s: cpu,
    handshakes: after.all - before.all, resumed: after.resumed - before.resumed } };
}

/** The edge's PSS, and what of it is memory of its own. */
function parts(pid) {
  const rollup = readFileSync(`/proc/${pid}/smaps_rollup`, 'utf8');
  const of = (name) => Number(new RegExp(`^${name}:\\s+(\\d+) kB$`, 'm').exec(rollup)[1]) * 1024;
  return { pss: pssBytes(pid), anonymous: of('Pss_Anon') };
}

/** The whole machine's slab: sockets of both ends, polls, descriptors. */
function kernelBytes() {
  const info = readFileSync('/proc/meminfo', 'utf8');
  return Number(/^Slab:\s+(\d+) kB$/m.exec(info)[1]) * 1024;
}

export function idleRows(plan, { connected, connect_cpu_s: cpu, back, received, samples }) {
  const { connected: n } = connected;
  const row = (title, name, asked = '') => {
    const { pss } = samples[name].edge;
    const each = pss / n;
    const more = (pss - samples.empty.edge.pss) / n;
    return [title, `${fixed(pss / 1e6)} MB: ${fixed(each, 1)}, ${fixed(more, 1)} bytes`, asked];
  };
  const kernel = (samples.rested.kernel - samples.empty.kernel) / n;
  return [
    ['**Idle connections**',
      `${whole(n)} SSE on ${plan.workers} workers${spoken(plan)}, `
      + `${whole(connected.connects_per_s)}/s`, ''],
    ["the edge's processor time for a connection that opens", `${whole((cpu / n) * 1e6)} µs`, ''],
    ...(back ? [['all leave and come back', `${whole(back.connects_per_s)}/s, `
      + `${whole((back.cpu_s / n) * 1e6)} µs each; ${whole(back.resumed)} of `
      + `${whole(back.handshakes)} handshakes by a ticket`, '']] : []),
    ['edge memory (PSS), nobody there', `${fixed(samples.empty.edge.pss / 1e6)} MB`, ''],
    ['all connected: PSS; a connection with and without that', ...row('', 'connected').slice(1)],
    row('at rest', 'rested', plan.tls ? '≤ 8,000 bytes' : '≤ 100 bytes at 1,000,000'),
    [`after ${whole(received.events)} deliveries`, ...row('', 'stormed').slice(1)],
    row('at rest again', 'rested again'),
    row('all have left', 'left'),
    ["kernel's slab, both ends, a connection", `${whole(kernel)} bytes`, ''],
  ];
}
