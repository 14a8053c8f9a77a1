// Cases of damage at rest (case.mjs), one after the other, and their table.

import { casesOf, playCase } from './case.mjs';
import { Random } from './random.mjs';
import { Still } from './still.mjs';

const FOUND_SHOWN_MAX = 3;
const SAID_EVERY = 50;

/** Plays as many cases as asked, or for `msMax` behind what is made once.
 *  Gives `[{path, harm, kind, found, ms}]`. */
export async function runDamage({ seed, cases, only = '', msMax = Infinity, say }) {
  const random = new Random(seed);
  const still = await Still.make(random.fork('still'));
  const end = Date.now() + msMax;
  const results = [];
  try {
    const all = casesOf(still, random)
      .filter(({ what }) => what.path.includes(only));
    while (all.length > 0 && results.length < cases && Date.now() < end) {
      const next = all[results.length % all.length];
      const { base, what } = next;
      const begun = Date.now();
      const { kind, did, found } = await playCase(still, next, random.fork('case'));
      results.push({ path: what.path, harm: what.kind, kind, found, ms: Date.now() - begun });
      if (results.length % SAID_EVERY === 0) say(`${results.length} cases of ${cases}`);
      if (kind !== 'WRONG') continue;
      say(`WRONG: case ${results.length}, ${base.name}: ${what.path} ${did}: `
        + `${found.length} found`);
      for (const text of found.slice(0, FOUND_SHOWN_MAX)) say(`    ${text}`);
    }
  } finally {
    still.remove();
  }
  return results;
}

/** One line for each file and harm. */
export function damageTable(results) {
  const rows = new Map();
  for (const { path, harm, kind } of results) {
    const name = `${path} ${harm}`;
    const row = rows.get(name) ?? { equal: 0, told: 0, refused: 0, WRONG: 0 };
    row[kind] += 1;
    rows.set(name, row);
  }
  const width = Math.max(4, ...[...rows.keys()].map((name) => name.length));
  const line = (name, cells) => `  ${name.padEnd(width)} ${cells.map((cell) =>
    String(cell).padStart(8)).join('')}`;
  const ms = results.reduce((sum, result) => sum + result.ms, 0);
  return [`  ${Math.round(ms / results.length)} ms a case`,
    line('file', ['equal', 'told', 'refused', 'WRONG']),
    ...[...rows].sort(([a], [b]) => (a < b ? -1 : 1)).map(([name, row]) =>
      line(name, Object.values(row)))].join('\n');
}
