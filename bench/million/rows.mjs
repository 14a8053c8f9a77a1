// Makes the table that people read from the figures of the phases: what, reached, asked.

import { fixed, median, whole } from '../lib/words.mjs';
import { buckets } from './network.mjs';

/** What is asked is asked of a million. */
const ASKED_FROM = 1_000_000;
const HEAD = { connect: '**Connections**', rates: '**Deliveries**', everyone: '**Celebrities**',
  killBrain: '**kill -9 of the brain**', killEdge: '**kill -9 of the edge**',
  leave: '**Everybody leaves**', floor: '**The floor**' };

const gb = (bytes) => `${fixed(bytes / 1e9)} GB`;
const ms = (seconds) => `${fixed(seconds * 1e3, 0)} ms`;
const perMillion = ({ cpu, received }, part) => (cpu[part] / received.events) * 1e6;
const costs = (stretch) => `${fixed(perMillion(stretch, 'brain'))} + `
  + `${fixed(perMillion(stretch, 'edge'))} = ${
    fixed(perMillion(stretch, 'brain') + perMillion(stretch, 'edge'))} s`;
const percentiles = ({ latency_ms: latency }) =>
  `${fixed(latency.p50, 1)} / ${fixed(latency.p99, 1)} / ${fixed(latency.p99_9, 1)} ms`;

function connectRows({ connections, degree }, { graph, connect }) {
  const { report, memory: { before, after } } = connect;
  const each = (bytes) => `${whole(bytes / connections)} bytes`;
  const kernel = after.kernel.all - before.kernel.all;
  const taken = before.kernel.available - after.kernel.available;
  const grown = Object.entries(connect.slab_bytes_per_connection);
  const slabs = grown.length === 0 ? 'only root can read them'
    : `${whole(grown.reduce((sum, [, bytes]) => sum + bytes, 0))} bytes: ${grown
      .map(([name, bytes]) => `${name} ${whole(bytes)}`).join(', ')}`;
  const brain = graph === undefined ? [
    ['brain (PSS) that a session brought', each(after.brain - before.brain), ''],
  ] : [
    [`brain (PSS) per online user with ${degree} follows`,
      each(after.brain - graph.empty_bytes), '≤ 600'],
    ['follows imported per second', whole(graph.imported.answer.added / graph.imported.seconds),
      '≥ 200,000'],
  ];
  return [
    ['held, all welcomed', whole(report.connected), whole(connections)],
    ['opened per second', whole(report.connects_per_s), '≥ 15,000'],
    ['connect to welcome p50 / p99',
      `${fixed(report.welcome_ms.p50)} / ${fixed(report.welcome_ms.p99)} ms`, ''],
    ['edge (PSS) per idle connection', each(after.edge), '≤ 100'],
    ...brain,
    ...(buckets() ? [['the kernel\'s hash table of TCP connections',
      `${whole(buckets())} buckets`, '']] : []),
    ['kernel per connection, both ends', each(kernel), ''],
    ['of it slab caches of sockets, files and epoll', slabs, ''],
    ['load clients (PSS) per connection', each(after.clients), ''],
    ['in all: brain, edge, kernel, clients',
      [after.brain, after.edge, kernel, after.clients].map(gb).join(', '), ''],
    ['less memory available than before the connections', `${gb(taken)}, ${each(taken)} each`, ''],
  ];
}

function rateRows(plan, { rates: { rising, most, half, posts }, floor }) {
  const steps = rising.map((step) => [`${whole(step.asked_per_s)} deliveries/s asked: p50 / p99 / `
    + 'p99.9', `${percentiles(step.received)}, ${step.held ? 'held' : 'not held'} `
    + `(${whole(step.per_s)}/s)`, '']);
  const beats = Math.max(...[...rising, most, half, posts].map((step) => step.heartbeats_per_s));
  return [
    ...steps,
    ['most deliveries/s, in batches', whole(most.per_s), ''],
    ['the same: processor time per million, brain + edge', costs(most), ''],
    ...(floor ? [
      ['**most deliveries to floor**', fixed(most.per_s / floor.sends_per_s), '≥ 0.75'],
      ['the same with the heartbeats that were sent meanwhile',
        fixed((most.per_s + most.heartbeats_per_s) / floor.sends_per_s), ''],
    ] : []),
    [`half of that, ${whole(half.per_s)}/s: p50 / p99 / p99.9`, percentiles(half.received),
      'p99 ≤ 20 ms'],
    ['the same: processor time per million, brain + edge', costs(half), ''],
    ['single POSTs/s on 64 connections, each as soon as the last is answered',
      `${whole(posts.published.accepted / plan.seconds)}, ${whole(posts.per_s)} deliveries/s`,
      '≥ 4,000'],
    ['the same: processor time per million, brain + edge', costs(posts), ''],
    ['heartbeats/s besides, at most', whole(beats), ''],
  ];
}

function everyoneRows(plan, { everyone: { before, celebrities }, floor }) {
  const middle = (rounds, name) => median(rounds.map((round) => round[name]));
  const rows = celebrities.flatMap(({ followers, rounds }) => {
    const missing = followers - Math.min(...rounds.map((round) => round.received));
    const bare = floor && followers / floor.sends_per_s;
    const asked = followers === plan.connections ? '≤ 1.3 × the floor\'s time' : '≤ 500 ms';
    return [
      [`one event for ${whole(followers)} followers: first, last delivery`,
        `${ms(middle(rounds, 'first_s'))}, ${ms(middle(rounds, 'last_s'))}`
        + `${bare ? ` (${fixed(middle(rounds, 'last_s') / bare)} × the floor's time)` : ''}`
        + `${missing > 0 ? `; ${whole(missing)} never came` : ''}`, asked],
      ['the same: p99 of others meanwhile',
        `${fixed(median(rounds.map(({ meanwhile }) => meanwhile.p99)), 1)} ms`, ''],
    ];
  });
  return [['p99 of others before', `${fixed(before.p99, 1)} ms`, ''], ...rows];
}

export const crowdRow = ({ crowd: { size, lost, gaps, gaps_told: told, duplicates,
  order_breaks: breaks }, published }) => [
  `of ${whole(published.accepted)} events for a crowd of ${whole(size)}: lost, gaps, twice, `
  + 'out of order',
  `${whole(lost)}, ${whole(gaps + told)}, ${whole(duplicates)}, ${whole(breaks)}`, '0, 0, –, 0'];

function brainRows(plan, { killBrain: result }) {
  return [
    ['kill to the new brain being ready', `${fixed(result.ready_s)} s`, ''],
    [`kill until ${whole(result.sessions)} sessions are known again`,
      result.sessions >= result.expected ? `${fixed(result.synced_s)} s`
        : `never all: ${whole(result.expected)} are connected`, '≤ 10 s'],
    ['kill to events flowing to all of the crowd', `${fixed(result.flowing_s)} s`, ''],
    ['connections dropped', whole(result.dropped), '0'],
    crowdRow(result),
  ];
}

function edgeRows({ connections }, { killEdge: result }) {
  const { brain, edge } = result.memory;
  return [
    ['kill to all back', `${fixed(result.all_s)} s`, ''],
    ['back per second', whole(result.back_per_s), ''],
    ['told to come back later', whole(result.busy), ''],
    ['brain, edge (PSS) afterwards', `${gb(brain)}, ${gb(edge)}, `
      + `${whole(edge / connections)} bytes a connection`, ''],
    crowdRow(result),
  ];
}

function leaveRows(plan, { leave }) {
  return [
    ['until no session was left', `${fixed(leave.seconds)} s`, ''],
    ['brain, edge (PSS) afterwards', `${gb(leave.brain)}, ${gb(leave.edge)}`, ''],
  ];
}

function floorRows(plan, { floor }) {
  return [
    [`bare sends/s, ${whole(floor.pairs)} senders, random order`, whole(floor.sends_per_s), ''],
    ['processor time per million, senders alone',
      `${fixed(floor.sender_cpu_s_per_million)} s`, ''],
  ];
}

const ROWS = { connect: connectRows, rates: rateRows, everyone: everyoneRows,
  killBrain: brainRows, killEdge: edgeRows, leave: leaveRows, floor: floorRows };

/** Rows of all phases that came to their end. */
export function rowsOf(plan, found) {
  const asks = plan.connections >= ASKED_FROM;
  return Object.entries(ROWS).filter(([phase]) => found[phase] !== undefined)
    .flatMap(([phase, rows]) => [[HEAD[phase], '', ''], ...rows(plan, found)])
    .map(([what, reached, asked]) => [what, reached, asks ? asked : '']);
}

/** Of a run that couldn't go on: the sample with the most connections. */
export function stoppedRows(samples) {
  const most = samples.reduce((best, sample) =>
    ((sample.connected ?? 0) >= (best.connected ?? 0) ? sample : best), {});
  if (!most.connected) return [];
  const { brain, edge, kernel, clients, slab } = most.memory_bytes;
  return [
    ['**Before it stopped**', '', ''],
    ['most connections at once', whole(most.connected), ''],
    ['brain, edge, kernel, clients', [brain, edge, kernel, clients].map(gb).join(', '), ''],
    ['of the kernel\'s, in slab caches', gb(slab), ''],
    ['kernel per connection, both ends', `${whole(kernel / most.connected)} bytes`, ''],
  ];
}
