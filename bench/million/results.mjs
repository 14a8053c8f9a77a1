// Where results of a long run go: `bench/work/<date>-<n>/`, written whether or not the run came to
// its end, and from there, if asked, to `bench/results/`.

import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { json, keep } from '../lib/keep.mjs';

const REPORT = process.env.REPORT_PROGRAM
  ?? fileURLToPath(new URL('../../edge/target/release/halley-report', import.meta.url));

/** A name for what a run of today leaves; a second one of the same day and size gets a number. */
export function freeName(name) {
  const base = `${new Date().toISOString().slice(0, 10)}-${name}`;
  const isTaken = (one) => ['../work/', '../results/'].some((folder) =>
    existsSync(fileURLToPath(new URL(folder + one, import.meta.url))));
  let free = base;
  for (let count = 2; isTaken(free); count += 1) free = `${base}-${count}`;
  return free;
}

/** The directory of a run, made if it isn't there: `given`, or one in `bench/work/`. */
export function makeFolder(given, name) {
  const folder = given ?? fileURLToPath(new URL(`../work/${name}`, import.meta.url));
  mkdirSync(folder, { recursive: true });
  return folder;
}

/** Keeps table and figures of a run. Samples are large, and its command takes them again. */
export function keepFolder(folder, name) {
  keep(name, Object.fromEntries(['table.md', 'result.json']
    .map((file) => [`/${file}`, readFileSync(join(folder, file), 'utf8')])));
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
  writeFileSync(join(folder, 'result.json'), json(result));
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
