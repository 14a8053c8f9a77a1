// From the turns of all rounds to the table that people read.

import { FOLLOWERS } from '../../lib/crowd.mjs';
import { fixed, median, whole } from '../../lib/words.mjs';
import { cpuPerMillion, rateOf } from './turn.mjs';

const HEAD = ['server', 'bytes per idle connection', 'p50 / p99, ms', 'at deliveries/s',
  'CPU s per million then', 'most deliveries/s', 'to the floor', 'CPU s per million then',
  'not delivered'];

const middle = (turns, of) => median(turns.map(of));
const perConnection = ({ idle, before, connected }) =>
  (idle.pss - before.pss) / connected.connected;
const partPerConnection = (name) => ({ idle, before, connected }) =>
  (idle.parts[name] - before.parts[name]) / connected.connected;
const kernelPerEnd = ({ idle, before, connected }) =>
  (idle.slab - before.slab) / (2 * connected.connected);
const missing = ({ received, due }) => Math.max(0, due - received.events);

/** What was accepted and never received, as a share of what was due. */
function notDelivered(turns) {
  const windows = turns.flatMap(({ rated, most }) => [rated, most]);
  const share = windows.reduce((sum, w) => sum + missing(w), 0)
    / Math.max(1, windows.reduce((sum, w) => sum + w.due, 0));
  return share === 0 ? '0' : `${(share * 100).toPrecision(2)} %`;
}

/** All of a server's memory, and its parts' where it has parts. */
function memory(turns) {
  const parts = Object.keys(turns[0].idle.parts)
    .map((name) => `${name} ${whole(middle(turns, partPerConnection(name)))}`);
  const all = whole(middle(turns, perConnection));
  return parts.length === 0 ? all : `${all} (${parts.join(', ')})`;
}

function rivalRow(title, turns, floors) {
  const ms = (name) => fixed(middle(turns, ({ rated }) => rated.received.latency_ms[name]));
  return [
    title,
    memory(turns),
    `${ms('p50')} / ${ms('p99')}`,
    whole(middle(turns, ({ rated }) => rateOf(rated))),
    fixed(middle(turns, ({ rated }) => cpuPerMillion(rated)), 1),
    whole(middle(turns, ({ most }) => rateOf(most))),
    fixed(median(turns.map(({ most, round }) => rateOf(most) / floors[round].most.sends_per_s))),
    fixed(middle(turns, ({ most }) => cpuPerMillion(most)), 1),
    notDelivered(turns),
  ];
}

function floorRow(plan, floors) {
  return [
    'raw floor: a bare `send` loop and reader', '0', '–', whole(plan.rate * FOLLOWERS),
    fixed(middle(floors, ({ rated }) => rated.sender_cpu_s_per_million), 1),
    whole(middle(floors, ({ most }) => most.sends_per_s)), '1.00',
    fixed(middle(floors, ({ most }) => most.sender_cpu_s_per_million), 1), '0',
  ];
}

/** The rows: the servers in their order, then the floor, then those of which nothing is known. */
export function rows({ plan, servers, floors }) {
  const all = Object.values(servers);
  const title = ({ title: name, version }) => (version === null ? name : `${name}, ${version}`);
  const measured = all.filter(({ turns }) => turns.length > 0);
  const others = all.filter(({ turns }) => turns.length === 0);
  return [
    ...measured.map((server) => rivalRow(title(server), server.turns, floors)),
    floorRow(plan, floors),
    ...others.map((server) => [title(server), server.problem ?? 'not measured',
      ...HEAD.slice(2).map(() => '')]),
  ];
}

const notes = (plan, kernel) => [
  'One server at a time, in turns, with the same clients, messages and processors: subjects or '
    + `channels of ${FOLLOWERS} followers, events of 79 bytes of JSON; no TLS, no compression, no `
    + 'history but Halley\'s. Server, clients and publisher share the cores.',
  'Bytes per idle connection are PSS of all of a server\'s processes, without the kernel\'s: '
    + `${whole(kernel)} bytes of slab per socket end, clients' ends among them, whichever server. `
    + 'Where follows are stored before anybody connects, they are counted too.',
  'p50 and p99 are from the moment at which an event was due to the client\'s read, at '
    + `${whole(plan.rate)} single POSTs/s (NATS: PUBs); who doesn't hold that gets three `
    + 'quarters of what came through. The most is by single POSTs, the next as soon as one is '
    + `answered, on ${plan.publishers} connections; by NDJSON batches where nothing else is said `
    + 'at Halley, which has them; by pipelined PUBs at NATS. It is held against the floor of its '
    + 'own round.',
  'CPU is user and system time of all of a server\'s processes; clients and publishers come on '
    + 'top, the same for all.',
];

/** The document. */
export function render(results) {
  const { plan, machine, started, command, servers, floors } = results;
  const turns = Object.values(servers).flatMap((server) => server.turns);
  const line = (cells) => `| ${cells.join(' | ')} |`;
  const kernel = turns.length > 0 ? middle(turns, kernelPerEnd) : 0;
  return [
    `# ${plan.title}, ${started.slice(0, 10)}`,
    '',
    `${machine.cores} cores (${machine.processor}), ${machine.memory_gb} GB, `
      + `Linux ${machine.kernel}, ${machine.erlang}, ${machine.rust}, `
      + `Node ${process.versions.node}, commit ${machine.commit}.`,
    '',
    `Made by \`${command}\`; medians of ${floors.length} rounds.`,
    '',
    `${whole(plan.connections)} connections.`,
    '',
    line(HEAD),
    line(HEAD.map(() => '---')),
    ...rows(results).map(line),
    '',
    ...notes(plan, kernel).flatMap((note) => [`- ${note}`]),
    '',
  ].join('\n');
}
