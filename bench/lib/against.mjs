// `groups` of two builds in one run, in turns: this checkout's and another's. Machines drift by
// tens of percent within an hour; what two builds did in turns in one run can be compared. With
// `--subscribed` no user follows anything at this checkout's: each session is subscribed to its
// user's follows at the other's, and to two subjects more. With `--to` each event is published to
// the sixteen users of a group at this checkout's, and about what they follow at the other's.

import { writeFileSync } from 'node:fs';
import { execFileSync } from 'node:child_process';
import { join, resolve } from 'node:path';
import { EVENTS_PER_S, MOST, post, window } from './groups.mjs';
import { FOLLOWERS } from './crowd.mjs';
import { Clients, load } from './load.mjs';
import { pssBytes } from './process.mjs';
import { say } from './say.mjs';
import { sleep } from '../../test/lib/wait.mjs';
import { address, spoken } from './tls.mjs';
import { fixed, median, whole } from './words.mjs';

const SUBSCRIPTIONS = 3;
/** Until what the connections took is as it stays. */
const IDLE_MS = 8_000;

/** Starts another checkout's build as `start` starts this one's. */
export async function startOther(directory, options) {
  const launcher = join(resolve(directory), 'halley');
  const before = process.env.LAUNCHER;
  process.env.LAUNCHER = launcher;
  try {
    // The query makes it another module, which reads the variable again.
    const { start } = await import('../../test/lib/halley.mjs?against');
    return await start(options);
  } finally {
    if (before === undefined) delete process.env.LAUNCHER;
    else process.env.LAUNCHER = before;
  }
}

/** What the other build is, as far as it can say. */
export function describeOther(directory) {
  const ask = (program, ...args) => {
    try {
      return execFileSync(program, args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] })
        .trim();
    } catch {
      return '';
    }
  };
  const top = ask('git', '-C', directory, 'rev-parse', '--show-toplevel');
  const commit = top === resolve(directory)
    ? ask('git', '-C', directory, 'rev-parse', '--short', 'HEAD') : '';
  return commit === '' ? ask(join(resolve(directory), 'halley'), 'version') : `commit ${commit}`;
}

export async function groupsAgainst(here, there, plan, folder) {
  const count = Math.ceil(plan.connections / FOLLOWERS);
  const pairs = Array.from({ length: plan.connections },
    (_, n) => `${n + 1} g${Math.floor(n / FOLLOWERS)}\n`).join('');
  writeFileSync(join(folder, 'groups.txt'), pairs);
  const sides = { here: { halley: here }, there: { halley: there } };
  for (const [name, side] of Object.entries(sides)) {
    const subscribed = plan.subscribed && name === 'here';
    if (!subscribed) await post(`${side.halley.apiUrl}/v1/follows`, pairs);
    const nobody = bytesOf(side.halley);
    side.clients = new Clients(...address(side.halley, plan),
      '--connections', `${plan.connections}`, ...subscribed
        ? ['--subscribe', `${SUBSCRIPTIONS}`, '--group-size', `${FOLLOWERS}`] : []);
    const { connected, connects_per_s: perS } = await side.clients.ask('ready');
    if (connected !== plan.connections) throw new Error(`only ${connected} connected`);
    await sleep(IDLE_MS);
    Object.assign(side, { rated: [], most: [], perS, nobody, idle: bytesOf(side.halley) });
  }
  const seconds = `${Math.max(1, Math.round(plan.seconds / plan.rounds))}`;
  const kinds = { rated: ['--rate', `${EVENTS_PER_S}`],
    most: ['--closed', '--connections', `${MOST.connections}`, '--batch', `${MOST.batch}`] };
  for (let round = 1; round <= plan.rounds; round += 1) {
    // Whoever goes first has another machine than who goes second: they change places.
    const order = round % 2 ? ['here', 'there'] : ['there', 'here'];
    for (const kind of ['rated', 'most']) {
      for (const name of order) {
        const { halley, clients, [kind]: windows } = sides[name];
        say(`groups: round ${round} of ${plan.rounds}: ${kind}, ${name}`);
        const whom = plan.to && name === 'here' ? ['--to', `${FOLLOWERS}`] : [];
        windows.push(await window(halley, clients, () => load('publish', '--url', halley.apiUrl,
          '--subjects', `groups:${count}`, ...whom, '--seconds', seconds, ...kinds[kind])));
      }
    }
  }
  const result = { other: describeOther(plan.against) };
  for (const [name, { halley, clients, rated, most, ...opened }] of Object.entries(sides)) {
    result[name] = { rated, most, ...opened, brain_bytes: pssBytes(halley.brainPid()),
      edge_bytes: pssBytes(halley.edgePid()) };
    await clients.quit();
  }
  return result;
}

const bytesOf = (halley) => ({ edge: pssBytes(halley.edgePid()),
  brain: pssBytes(halley.brainPid()) });

/** What the sessions brought, in bytes for each; and how fast they came. */
function idleRows(plan, { here, there }) {
  const brought = ({ nobody, idle }, side) => (idle[side] - nobody[side]) / plan.connections;
  return [
    ...['edge', 'brain'].map((side) => [`${side}, bytes that a session at rest brought`,
      `${whole(brought(here, side))} against ${whole(brought(there, side))}`, '']),
    ['connected a second', `${whole(here.perS)} against ${whole(there.perS)}`, ''],
  ];
}

const figures = [
  ['deliveries/s at 4,000 single POSTs/s', 'rated', rate, whole],
  ['publish to receipt p50, ms', 'rated', ({ received }) => received.latency_ms.p50, fixed],
  ['publish to receipt p99, ms', 'rated', ({ received }) => received.latency_ms.p99, fixed],
  ['processor seconds per million, brain', 'rated', cost('brain'), fixed],
  ['processor seconds per million, edge', 'rated', cost('edge'), fixed],
  ['most deliveries/s', 'most', rate, whole],
  ['the same: processor seconds per million, brain', 'most', cost('brain'), fixed],
  ['the same: processor seconds per million, edge', 'most', cost('edge'), fixed],
];

function rate({ received }) {
  return received.events / ((received.last_event_ns - received.first_event_ns) / 1e9);
}

function cost(side) {
  return ({ cpu, received }) => (cpu[side] / received.events) * 1e6;
}

function titleOf({ subscribed, to }) {
  if (subscribed) return '**Sessions with 3 subscriptions, and with follows, in turns**';
  if (to) return '**Events to 16 users alone, and to 16 followers, in turns**';
  return '**Subjects with 16 followers, two builds in turns**';
}

export function againstRows(plan, { here, there, other }) {
  const row = ([name, kind, value, show]) => {
    const [ours, theirs] = [here, there].map((side) => side[kind].map((one) => value(one)));
    // Rounds stand next to each other in time, so their ratios are less noisy than the medians'.
    const ratio = median(ours.map((one, round) => one / theirs[round]));
    return [name, `${show(median(ours))} against ${show(median(theirs))}`, `ratio ${fixed(ratio)}`];
  };
  return [
    [titleOf(plan),
      `${whole(plan.connections)} SSE connections each${spoken(plan)}; against ${other}`,
      plan.tls ? '' : 'within 10 %'],
    ...figures.map(row),
    ...plan.subscribed ? idleRows(plan, { here, there }) : [],
  ];
}
