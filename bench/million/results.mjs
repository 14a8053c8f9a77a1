// Where results of a long run go: `bench/results/<date>-<n>/`, written whether or not the run came
// to its end.

import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const REPORT = process.env.REPORT_PROGRAM
  ?? fileURLToPath(new URL('../../edge/target/release/halley-report', import.meta.url));

/** A new directory for a run; a second one of the same day and size gets a number. */
export function makeFolder(given, name) {
  if (given !== undefined) {
    mkdirSync(given, { recursive: true });
    return given;
  }
  const all = fileURLToPath(new URL('../results/', import.meta.url));
  const base = join(all, `${new Date().toISOString().slice(0, 10)}-${name}`);
  for (let count = 1; ; count += 1) {
    const folder = count === 1 ? base : `${base}-${count}`;
    if (!existsSync(folder)) {
      mkdirSync(folder, { recursive: true });
      return folder;
    }
  }
}

/** Paragraphs on what was measured, on what, and how to do it again. */
export function about({ machine, command, seconds }) {
  return [
    `${machine.cores} cores (${machine.processor}), ${machine.memory_gb} GB, `
      + `Linux ${machine.kernel}, ${machine.erlang}, ${machine.rust}, commit ${machine.commit}. `
      + 'Server, clients and publisher share the machine.',
    `Made by \`${command}\` in ${Math.round(seconds)} s.`,
  ];
}

function markdown({ title, about: paragraphs, rows, stopped }) {
  const line = (cells) => `| ${cells.join(' | ')} |`;
  const why = stopped ? [`**It stopped at: ${stopped.phase}.** ${stopped.why}`, ''] : [];
  return [`# ${title}`, '', ...paragraphs.flatMap((paragraph) => [paragraph, '']), ...why,
    line(['figure', 'reached', 'asked']), line(['---', '---', '---']), ...rows.map(line), '']
    .join('\n');
}

/** Writes result.json and table.md, has report.html drawn, and gives the table. */
export function writeResults(folder, result) {
  writeFileSync(join(folder, 'result.json'), `${JSON.stringify(result, null, 1)}\n`);
  const table = markdown(result);
  writeFileSync(join(folder, 'table.md'), table);
  try {
    execFileSync(REPORT, [folder], { stdio: ['ignore', 'ignore', 'pipe'] });
  } catch (error) {
    // The figures are worth having without their picture, which can be drawn later.
    process.stderr.write(`no report.html: ${error.stderr ?? ''}${error.message}\n`);
    process.exitCode = 1;
  }
  return table;
}
