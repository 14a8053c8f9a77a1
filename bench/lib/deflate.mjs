// Gain and price of permessage-deflate: WebSockets that agree on it and WebSockets that don't, one
// kind connected after the other, with events of words as people write them.

import { join } from 'node:path';
import { readFileSync } from 'node:fs';
import { sleep } from '../../test/lib/wait.mjs';
import { FOLLOWERS } from './crowd.mjs';
import { post, window } from './groups.mjs';
import { Clients, load } from './load.mjs';
import { pssBytes } from './process.mjs';
import { say } from './say.mjs';
import { fixed, median, whole } from './words.mjs';

/** `bytes` is the size of an event's data; around it are some hundred of the event's own. */
const CASES = [
  { name: 'short', bytes: 180, followers: FOLLOWERS, rate: 1_000 },
  { name: 'long', bytes: 900, followers: FOLLOWERS, rate: 1_000 },
  { name: 'alone', bytes: 180, followers: 1, rate: 1_000 },
];
const KINDS = ['ws', 'ws-deflate'];
/** What is counted are events: nobody shall be asked meanwhile whether he is there. */
export const deflateSettings = { HALLEY_STREAM_HEARTBEAT: '5m' };
/** Until what connecting took is given back. */
const REST_MS = 4_000;

export async function deflate(halley, plan, folder) {
  const count = (followers) => Math.ceil(plan.connections / followers);
  const idle = { ws: [], 'ws-deflate': [] };
  const cases = [];
  for (const one of CASES) {
    const file = join(folder, `deflate-${one.name}.txt`);
    await load('graph', '--groups', `${count(one.followers)}`, '--size', `${one.followers}`,
      '--out', file);
    await post(`${halley.apiUrl}/v1/follows`, readFileSync(file));
    const rounds = { ws: [], 'ws-deflate': [] };
    for (let round = 1; round <= plan.rounds; round += 1) {
      // Whoever goes first has another machine than who goes second: they change places.
      for (const kind of round % 2 ? KINDS : [...KINDS].reverse()) {
        say(`deflate: ${one.name}, round ${round} of ${plan.rounds}: ${kind}`);
        rounds[kind].push(await turn(halley, plan, kind, one, count(one.followers), idle[kind]));
      }
    }
    cases.push({ ...one, rounds });
    await unfollow(halley, file);
  }
  return { idle, cases };
}

async function turn(halley, plan, kind, { bytes, rate }, groups, idle) {
  const edge = halley.edgePid();
  const clients = new Clients('--url', halley.publicUrl, '--connections', `${plan.connections}`,
    '--transport', kind);
  const { connected } = await clients.ask('ready');
  if (connected !== plan.connections) throw new Error(`only ${connected} connected`);
  await sleep(REST_MS);
  idle.push(pssBytes(edge));
  const seconds = Math.max(1, Math.round(plan.seconds / plan.rounds));
  const measured = await window(halley, clients, () => load('publish', '--url', halley.apiUrl,
    '--subjects', `groups:${groups}`, '--rate', `${rate}`, '--seconds', `${seconds}`,
    '--bytes', `${bytes}`, '--words'));
  await clients.quit();
  await sleep(REST_MS);
  return measured;
}

/** The next case has other groups. */
async function unfollow(halley, file) {
  const answer = await fetch(`${halley.apiUrl}/v1/follows`, { method: 'DELETE',
    headers: { 'content-type': 'text/plain' }, body: readFileSync(file) });
  if (!answer.ok) throw new Error(`DELETE /v1/follows: ${answer.status}`);
}

const size = ({ received }) => received.bytes / received.events;
const cost = (side) => ({ cpu, received }) => (cpu[side] / received.events) * 1e6;

export function deflateRows(plan, { idle, cases }) {
  const rows = [
    ['**WebSockets without and with permessage-deflate, in turns**',
      `${whole(plan.connections)} connections; ratios are medians of neighbouring rounds'`, ''],
    ['edge memory (PSS) at rest, before the first event: without, with',
      KINDS.map((kind) => `${fixed(idle[kind][0] / 1e6)} MB`).join(', '), ''],
    ['the same a connection, medians of all rounds',
      `${KINDS.map((kind) => whole(median(idle[kind]) / plan.connections)).join(', ')} bytes`, ''],
  ];
  for (const { bytes, followers, rate, rounds } of cases) {
    const both = (value, show) => {
      const [plain, deflated] = KINDS.map((kind) => rounds[kind].map(value));
      const ratio = median(deflated.map((one, round) => one / plain[round]));
      return [`${show(median(plain))}, ${show(median(deflated))}`, `ratio ${fixed(ratio)}`];
    };
    rows.push(
      [`**data of ${bytes} bytes, subjects with ${followers} follower${followers > 1 ? 's' : ''}**`,
        `${whole(rate)} events/s`, ''],
      ['bytes of an event at the socket: without, with', ...both(size, fixed)],
      ['edge, processor seconds per million deliveries', ...both(cost('edge'), fixed)],
      ['brain, likewise', ...both(cost('brain'), fixed)],
    );
  }
  return rows;
}
