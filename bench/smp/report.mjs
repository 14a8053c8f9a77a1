// From the rounds to the table and the plot.

import { bars } from '../lib/bars.mjs';
import { fixed, median, whole } from '../lib/words.mjs';
import { SETTINGS } from './settings.mjs';

/** What is shown: where it is in a round, how, and whether less is better. */
const FIGURES = [
  { title: 'Halley: most deliveries/s', note: 'batches of 256 on 16 connections',
    of: ({ halley }) => halley.most.per_s, show: whole },
  { title: 'Halley: brain, processor seconds per million', note: 'at 4,000 single POSTs/s',
    of: ({ halley }) => halley.rated.cpu_s_per_million.brain, show: fixed, lower: true },
  { title: 'Halley: publish to receipt p50, ms', note: 'at 4,000 single POSTs/s',
    of: ({ halley }) => halley.rated.latency_ms.p50, show: fixed, lower: true },
  { title: 'Halley: publish to receipt p99, ms', note: 'at 4,000 single POSTs/s',
    of: ({ halley }) => halley.rated.latency_ms.p99, show: fixed, lower: true },
  { title: 'Counter: requests/s, a connection each', note: 'ab -c 100, as in the article',
    of: ({ counter }) => counter.fresh.per_s, show: whole },
  { title: 'Counter: requests/s, keep-alive', note: 'ab -k -c 100',
    of: ({ counter }) => counter.kept.per_s, show: whole },
  { title: 'Counter: transactions/s without sockets', note: '100 processes, nothing else runs',
    of: ({ counter }) => counter.alone.per_s, show: whole },
  { title: 'Counter: processor seconds per 100,000 requests', note: 'ab -k -c 100',
    of: ({ counter }) => counter.kept.cpu_s_per_100k, show: fixed, lower: true },
];

const valuesOf = (rounds, name, of) => rounds.map((round) =>
  of({ halley: round.halley[name], counter: round.counter[name] }));

export function table({ plan, machine, started, command, rounds }) {
  const line = (cells) => `| ${cells.join(' | ')} |`;
  const names = SETTINGS.map(({ name }) => name);
  const base = names[0];
  const rows = FIGURES.map(({ title, of, show }) => [title, ...names.map((name) => {
    const values = valuesOf(rounds, name, of);
    // Neighbours in time: their ratios are less noisy than the medians'.
    const ratio = median(values.map((value, i) => value / valuesOf(rounds, base, of)[i]));
    return name === base ? show(median(values)) : `${show(median(values))} (×${fixed(ratio)})`;
  })]);
  return [
    `# Schedulers, ${started.slice(0, 10)}`,
    '',
    `${machine.cores} cores (${machine.processor}), ${machine.memory_gb} GB, `
      + `Linux ${machine.kernel}, ${machine.erlang}, ${machine.rust}, commit ${machine.commit}.`,
    'Server, clients and publisher (or ab) share the cores.',
    '',
    `Made by \`${command}\`: medians of ${plan.rounds} rounds, in each of which every setting had `
      + 'its turn; in brackets, the median',
    'of the ratios to one scheduler in the same round. Every counter was checked at its end: '
      + `${whole(rounds.flatMap(({ counter }) => Object.values(counter))
        .reduce((sum, { count }) => sum + count, 0))} increments, none lost.`,
    '',
    line(['figure', ...names]),
    line(['---', ...names.map(() => '---')]),
    ...rows.map(line),
    '',
    ...SETTINGS.map(({ name, flags }) => `- ${name}: \`${flags}\``),
    '',
  ].join('\n');
}

export function plot({ machine, started, rounds }) {
  const panels = FIGURES.map(({ title, note, of, show, lower }) => ({
    title, note, lower,
    bars: SETTINGS.map(({ name }) => {
      const values = valuesOf(rounds, name, of);
      return { label: name, value: median(values), rounds: values, text: show(median(values)) };
    }),
  }));
  return bars(`Schedulers, ${started.slice(0, 10)}, ${machine.cores} cores, ${machine.erlang}: `
    + 'medians, and a dot for each round', panels);
}
