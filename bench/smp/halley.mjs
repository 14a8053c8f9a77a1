// Halley's own publish load, as `groups` of bench/run has it, with each of the emulator's settings.
// The edge and its connections stay: only the brain is killed and started with other flags, and the
// edge gives it its sessions back. So the settings differ in nothing else.

import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { start } from '../../test/lib/halley.mjs';
import { sleep, until } from '../../test/lib/wait.mjs';
import { FOLLOWERS, metrics } from '../lib/crowd.mjs';
import { EVENTS_PER_S, MOST, post } from '../lib/groups.mjs';
import { Clients, load } from '../lib/load.mjs';
import { cpuDuring } from '../lib/process.mjs';
import { say } from '../lib/say.mjs';

const SETTLE_MS = 500;
const SYNC_MS_MAX = 10_000;

/** One round: the publish load once with each setting. */
export async function halleyRound(settings, { connections, seconds }) {
  const halley = await start({ settings: { HALLEY_LOG_LEVEL: 'warning',
    ERL_ZFLAGS: settings[0].flags } });
  const results = {};
  let clients;
  try {
    const count = Math.ceil(connections / FOLLOWERS);
    const pairs = Array.from({ length: connections },
      (_, n) => `${n + 1} g${Math.floor(n / FOLLOWERS)}\n`).join('');
    writeFileSync(join(halley.folder, 'groups.txt'), pairs);
    await post(`${halley.apiUrl}/v1/follows`, pairs);
    clients = new Clients('--url', halley.publicUrl, '--connections', `${connections}`);
    const { connected } = await clients.ask('ready');
    if (connected !== connections) throw new Error(`only ${connected} connected`);
    const publish = (...args) => () => load('publish', '--url', halley.apiUrl,
      '--subjects', `groups:${count}`, '--seconds', `${seconds}`, ...args);
    for (const setting of settings) {
      say(`halley: ${setting.name}`);
      await restart(halley, setting.flags, connections);
      results[setting.name] = {
        rated: await window(halley, clients, publish('--rate', `${EVENTS_PER_S}`)),
        most: await window(halley, clients, publish('--closed',
          '--connections', `${MOST.connections}`, '--batch', `${MOST.batch}`)),
      };
    }
  } catch (error) {
    say(`the log's tail:\n${halley.logTail}`);
    throw error;
  } finally {
    await clients?.quit();
    await halley.stop();
  }
  return results;
}

async function restart(halley, flags, sessions) {
  await halley.killBrain();
  halley.settings.ERL_ZFLAGS = flags;
  await halley.start();
  await until('the edge has given all sessions', async () =>
    (await metrics(halley)).halley_sessions >= sessions, SYNC_MS_MAX);
}

async function window(halley, clients, publish) {
  await sleep(SETTLE_MS);
  await clients.ask('mark window');
  const { cpu } = await cpuDuring(halley, async () => {
    await publish();
    await sleep(SETTLE_MS);
  });
  const { events, first_event_ns: first, last_event_ns: last, latency_ms: latency } =
    await clients.ask('report');
  return { deliveries: events, per_s: events / ((last - first) / 1e9), latency_ms: latency,
    cpu_s_per_million: { brain: (cpu.brain / events) * 1e6, edge: (cpu.edge / events) * 1e6 } };
}
