// Foreign conformance suites against the built Halley (`make doors`), one table, one verdict.
// `node run.mjs [--save FILE] [suite]...`
//
// A case that comes out otherwise than its suite wants is a difference. Each must be in
// `differences.json` with what Halley does instead and why; one that isn't there, or that is there
// and no longer differs, fails the run. The suites come from package registries (`lib/fetch.mjs`)
// and stay out of the tree. Each runs in a process of its own, with a Halley of its own.

import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { cpus, tmpdir, totalmem } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { fetchAll } from './lib/fetch.mjs';
import { judge } from './lib/verdict.mjs';

const SUITES = {
  autobahn: 'Autobahn TestSuite 25.10.1, fuzzing client',
  json: 'JSONTestSuite, in four places',
  gunicorn: 'gunicorn 23.0.0, request corpora',
  llhttp: 'llhttp 9.3.0, test requests',
  wycheproof: 'Wycheproof 3fa63dd0344a, JWS and JWK',
};
const here = (file) => fileURLToPath(new URL(file, import.meta.url));
const differences = JSON.parse(readFileSync(here('differences.json'), 'utf8'));

const lines = [];
function say(line) {
  lines.push(line);
  console.log(line);
}

/** Runs a suite in a process of its own; gives `{cases, notes, seconds}`. */
async function runSuite(name, places) {
  const started = Date.now();
  const out = join(tmpdir(), `halley-doors-${process.pid}-${name}.json`);
  const child = spawn(process.execPath, [here('lib/suite.mjs'), here(`${name}.mjs`), out],
    { stdio: ['pipe', 'inherit', 'inherit'] });
  child.stdin.end(JSON.stringify(places));
  const [code] = await once(child, 'close');
  if (code !== 0) throw new Error(`the suite ${name} could not be run`);
  const result = JSON.parse(readFileSync(out, 'utf8'));
  rmSync(out);
  return { ...result, seconds: Math.round((Date.now() - started) / 1_000) };
}

function showDifferences(suite, known) {
  for (const reason of new Set(known.map((one) => one.reason))) {
    say(`\n${SUITES[suite]}: ${reason}`);
    for (const one of known) {
      if (one.reason !== reason) continue;
      say(`  ${one.name}: wanted ${one.want}, got ${one.got}${one.about ? ` (${one.about})` : ''}`);
    }
  }
}

const options = process.argv.slice(2);
const file = options[0] === '--save' ? options.splice(0, 2)[1] : undefined;
const names = options.length > 0 ? options : Object.keys(SUITES);
const places = fetchAll();
const judged = {};
for (const name of names) {
  console.log(`\n${SUITES[name]} ...`);
  const { cases, notes, seconds } = await runSuite(name, places);
  judged[name] = { ...judge(cases, differences[name] ?? []), notes, seconds };
}

const commit = execFileSync('git', ['describe', '--always', '--dirty'], { encoding: 'utf8' });
say(`make doors, ${new Date().toISOString().slice(0, 10)}, at ${commit.trim()}`);
say(`${cpus().length} cores (${cpus()[0].model}), ${Math.round(totalmem() / 2 ** 30)} GB\n`);
say('| suite | cases | as wanted | reader\'s choice | different, known | wrong | seconds |');
say('| --- | --- | --- | --- | --- | --- | --- |');
for (const [name, { total, passed, choices, known, wrong, seconds }] of Object.entries(judged)) {
  say(`| ${SUITES[name]} | ${total} | ${passed} | ${choices} | ${known.length} | ${wrong.length} `
    + `| ${seconds} |`);
}
for (const [name, result] of Object.entries(judged)) {
  for (const note of result.notes) say(`\n${SUITES[name]}: ${note}`);
  showDifferences(name, result.known);
}
const wrong = Object.entries(judged).flatMap(([name, result]) =>
  result.wrong.map((line) => `  ${name}: ${line}`));
if (wrong.length > 0) say(`\nneither wanted nor known:\n${wrong.join('\n')}`);
say(`\ndoors: ${wrong.length === 0 ? 'no difference without a reason' : `${wrong.length} wrong`}`);
if (file) writeFileSync(file, `${lines.join('\n')}\n`);
process.exitCode = wrong.length === 0 ? 0 : 1;
