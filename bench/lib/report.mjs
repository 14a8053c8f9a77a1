// From raw results to the table that people read.

import { fixed, median, whole } from './words.mjs';

const perMillion = ({ cpu, received }) => ({
  brain: (cpu.brain / received.events) * 1e6,
  edge: (cpu.edge / received.events) * 1e6,
});
const rate = ({ received }) =>
  received.events / ((received.last_event_ns - received.first_event_ns) / 1e9);

// Rows of a table are: what, reached, asked.

export function graphRows(plan, graph) {
  const { made, imported, brain_bytes: brain, connected, published, received, cpu } = graph;
  const { latency_ms: ms } = received;
  return [
    ['**Real graph**', `${whole(plan.users)} users, ${whole(imported.answer.added)} follows`, ''],
    ['graph generated', `${fixed(made.seconds)} s`, '≤ 10 s'],
    ['import of follows', `${whole(imported.answer.added / imported.seconds)}/s`, '≥ 200,000/s'],
    ['brain memory (PSS) with all follows', `${whole(brain / 1e6)} MB`, '≤ 1,500 MB'],
    ['connections', `${whole(connected.connected)}, ${whole(connected.connects_per_s)}/s`, ''],
    ['events published', `${whole(published.accepted)} in ${plan.seconds} s`, ''],
    ['deliveries', `${whole(received.events)}, ${whole(rate({ received }))}/s`, ''],
    ['publish to receipt p50 / p99 / p99.9',
      `${fixed(ms.p50)} / ${fixed(ms.p99)} / ${fixed(ms.p99_9)} ms`, ''],
    ['processor time, brain + edge', `${fixed(cpu.brain)} + ${fixed(cpu.edge)} s`, ''],
  ];
}

export function groupRows(plan, groups) {
  const { connected, edge_bytes: edge, rated, singles, most, floors, paced } = groups;
  const floor = median(floors.map((f) => f.sends_per_s));
  const cost = (windows, side) => median(windows.map((w) => perMillion(w)[side]));
  const costs = (windows) => `${fixed(cost(windows, 'brain'))} + ${fixed(cost(windows, 'edge'))}`
    + ` = ${fixed(cost(windows, 'brain') + cost(windows, 'edge'))}`;
  const ms = (name) => median(rated.map((w) => w.received.latency_ms[name]));
  const toFloor = (windows) =>
    fixed(median(windows.map((w, i) => rate(w) / floors[i].sends_per_s)));
  return [
    ['**Subjects with 16 followers**', `${whole(plan.connections)} SSE connections`, ''],
    ['new connections, handshake to welcome', `${whole(connected.connects_per_s)}/s`, '≥ 15,000/s'],
    ['edge memory (PSS) per idle connection',
      `${whole((edge.idle - edge.before) / connected.connected)} bytes`, '≤ 200'],
    ['edge memory (PSS) in all: empty, idle, after the load',
      `${[edge.before, edge.idle, edge.after].map((b) => fixed(b / 1e6, 1)).join(', ')} MB`, ''],
    ['deliveries/s at 4,000 single POSTs/s', whole(median(rated.map(rate))), '64,000'],
    ['publish to receipt p50 / p99 / p99.9',
      `${fixed(ms('p50'))} / ${fixed(ms('p99'))} / ${fixed(ms('p99_9'))} ms`,
      'p50 ≤ 0.35, p99 ≤ 1.2 ms'],
    ['processor seconds per million deliveries: brain + edge', costs(rated), '≤ 2.2 + 6.3'],
    ['the same of bare senders at the same rate (floor)',
      fixed(median(paced.map((f) => f.sender_cpu_s_per_million))), ''],
    ['most deliveries/s, single POSTs on 64 connections', whole(median(singles.map(rate))), ''],
    ['the same: processor seconds per million', costs(singles), ''],
    ['most deliveries/s, in batches', whole(median(most.map(rate))), ''],
    ['the same: processor seconds per million', costs(most), '≤ 0.8 + 4.4'],
    ['floor: bare sends/s', whole(floor), ''],
    ['the same: processor seconds per million, senders alone',
      fixed(median(floors.map((f) => f.sender_cpu_s_per_million))), ''],
    ['**most deliveries to floor**, single POSTs', toFloor(singles), '≥ 0.85'],
    ['the same in batches', toFloor(most), '≥ 1.05'],
  ];
}

/** The document: what was measured on what, how to do it again, and the table. */
export function render({ plan, machine, started, command }, rows) {
  const line = (cells) => `| ${cells.join(' | ')} |`;
  return [
    `# ${plan.title}, ${started.slice(0, 10)}`,
    '',
    `${machine.cores} cores (${machine.processor}), ${machine.memory_gb} GB, `
      + `Linux ${machine.kernel}, ${machine.erlang}, ${machine.rust}, commit ${machine.commit}.`,
    'Server, clients and publisher share the cores.',
    '',
    `Made by \`${command}\`; medians of ${plan.rounds} rounds where nothing else is said.`,
    '',
    line(['figure', 'reached', 'asked']),
    line(['---', '---', '---']),
    ...rows.map(line),
    '',
  ].join('\n');
}
