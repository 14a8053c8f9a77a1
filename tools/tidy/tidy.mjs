// The house rules as a failing test: `node tools/tidy/tidy.mjs` prints what breaks them and where,
// and exits with 1. A finding that only needs a look is a warning. The rules are in rules.mjs;
// exceptions, each with its reason, in exceptions.json.

import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { MOST, proseCounts } from './prose.mjs';
import { findings, judge } from './rules.mjs';
import { readTree } from './tree.mjs';

const exceptions = JSON.parse(readFileSync(new URL('exceptions.json', import.meta.url), 'utf8'));
const tree = readTree(fileURLToPath(new URL('../..', import.meta.url)));
const bad = judge(findings(tree), exceptions);
for (const { rule, path, line, message, isWarning } of bad) {
  console.log(`${path}:${line}: ${message} [${rule}]${isWarning ? ' (a warning)' : ''}`);
}
const warnings = bad.filter(({ isWarning }) => isWarning).length;
const failures = bad.length - warnings;
const prose = proseCounts(tree);
const tooMany = Object.keys(MOST).filter((area) => prose[area] > MOST[area]);
for (const area of tooMany) {
  console.log(`${area}: ${prose[area]} sentences that may be read twice, ${MOST[area]} at most: `
    + '`node tools/tidy/prose.mjs` shows them, tools/tidy/prose.mjs says why [prose]');
}
console.log(`tidy: ${tree.size} files, ${failures + tooMany.length} findings, `
  + `${warnings} warnings`);
const sentences = Object.entries(prose).map(([area, count]) => `${area} ${count}`).join(', ');
console.log(`tidy: sentences that may be read twice: ${sentences}`);
process.exitCode = failures + tooMany.length > 0 ? 1 : 0;
