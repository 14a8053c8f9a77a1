// Real input: a scale-free graph of a million users is imported through the API, some of them
// connect, and events are published about subjects drawn from the graph.

import { spawn } from 'node:child_process';
import { writeFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { sleep } from '../../test/lib/wait.mjs';
import { Clients, load } from './load.mjs';
import { cpuDuring, pssBytes } from './process.mjs';
import { say } from './say.mjs';

const SEED = 1;
/** Rate of events for this part; what it gives in deliveries depends on who is connected. */
const EVENTS_PER_S = 2_000;

/** Generates the graph and imports it. */
export async function importGraph(halley, { users, degree }, folder) {
  const file = join(folder, `graph-${users}-${degree}-${SEED}.txt`);
  say(`graph: generating ${users} users with ${degree} follows each`);
  const made = await load('graph', '--users', `${users}`, '--degree', `${degree}`,
    '--seed', `${SEED}`, '--out', file);
  const empty = pssBytes(halley.brainPid());
  say(`graph: importing ${statSync(file).size} bytes through POST /v1/follows`);
  const { result: imported, cpu: importCpu } = await cpuDuring(halley, () => upload(halley, file));
  say(`graph: ${imported.answer.added} follows in ${imported.seconds.toFixed(1)} s`);
  return { made, empty_bytes: empty, imported, importCpu };
}

export async function realGraph(halley, plan, folder) {
  const { users, degree } = plan;
  const graph = await importGraph(halley, plan, folder);
  await sleep(5_000);
  const brain = pssBytes(halley.brainPid());

  const online = sample(users, plan.connections);
  const usersFile = join(folder, 'online.txt');
  writeFileSync(usersFile, online.map((user) => `${user}\n`).join(''));
  const clients = new Clients('--url', halley.publicUrl, '--connections', `${plan.connections}`,
    '--users-file', usersFile);
  const connected = await clients.ask('ready');
  say(`graph: ${connected.connected} connected; publishing for ${plan.seconds} s`);
  await clients.ask('mark graph');
  const { result: published, cpu } = await cpuDuring(halley, () => load('publish',
    '--url', halley.apiUrl, '--rate', `${EVENTS_PER_S}`, '--seconds', `${plan.seconds}`,
    '--subjects', `graph:${users}:${degree}:${SEED}`));
  await sleep(1_000);
  const received = await clients.ask('report');
  await clients.quit();
  return { ...graph, brain_bytes: brain, connected, published, received, cpu };
}

/** Streams a file to POST /v1/follows in chunks, as a person would. */
export async function upload(halley, file) {
  const began = process.hrtime.bigint();
  const child = spawn('curl', ['-sS', '-X', 'POST', '-T', file, '-H', 'content-type: text/plain',
    `${halley.apiUrl}/v1/follows`], { stdio: ['ignore', 'pipe', 'inherit'] });
  let text = '';
  child.stdout.on('data', (data) => { text += data; });
  const code = await new Promise((resolve) => { child.once('close', resolve); });
  const seconds = Number(process.hrtime.bigint() - began) / 1e9;
  if (code !== 0) throw new Error(`curl exited with ${code}`);
  const answer = JSON.parse(text);
  if (!(answer.added > 0)) throw new Error(`the import failed: ${text.slice(0, 500)}`);
  return { seconds, answer };
}

/** `count` different users of 1..users, the same for every run. */
function sample(users, count) {
  const step = Math.floor(users / count);
  return Array.from({ length: count }, (_, i) => 1 + i * step);
}
