// Runs the system tests and ends with `N passed, N failed`.
// `node run.mjs [part of a file name]...` runs the files that match. With SERVER=mochiweb in the
// environment it is the tests of mochiweb.json, against `apps/halley_mochiweb`.
//
// Five files run side by side, for they wait most of their time; what a file says comes in one
// piece all the same. The longest begin first, so that none runs alone at the end. Those that
// measure, or that fill queues, run at last, two at a time.

import { once } from 'node:events';
import { readdirSync, statSync } from 'node:fs';
import { basename } from 'node:path';
import { run } from 'node:test';
import { fileURLToPath } from 'node:url';
import { hasFile } from '../lib/mochiweb.mjs';

const FILE_MS_MAX = 480_000;
const SIDE_BY_SIDE = 5;
const AT_LAST_SIDE_BY_SIDE = 2;
/** Their size says less of their time than it does of the others'. */
const FIRST = ['bare', 'postgres-login', 'demo'];
const AT_LAST = ['drain', 'limits', 'million', 'mochiweb', 'past', 'replace', 'slow', 'storm'];

const folder = fileURLToPath(new URL('.', import.meta.url));
const wanted = process.argv.slice(2);
const isIn = (names, file) => names.includes(basename(file, '.test.mjs'));
const weight = (file) => (isIn(FIRST, file) ? Infinity : statSync(file).size);
const files = readdirSync(folder)
  .filter((name) => name.endsWith('.test.mjs') && hasFile(folder + name))
  .filter((name) => wanted.length === 0 || wanted.some((part) => name.includes(part)))
  .map((name) => folder + name)
  .sort((one, other) => weight(other) - weight(one) || 0); // of two that are first: NaN

const counts = { passed: 0, failed: 0, skipped: 0 };
const failures = [];

/** A suite ends as a test too; only what is inside it counts, unless it never ran. */
const isSuite = (data) => data.details?.type === 'suite';

/** A file without any test passes as one. */
const isFile = (data) => files.includes(data.name);

function show(data, passed) {
  const ms = Math.round(data.details?.duration_ms ?? 0);
  const [word, more] = data.skip === undefined ? [passed ? 'ok  ' : 'FAIL', `${ms} ms`]
    : ['skip', typeof data.skip === 'string' ? data.skip : 'no reason given'];
  console.log(`${'  '.repeat(data.nesting)}${word} ${data.name} (${more})`);
}

/** What a failed test threw, with the log's tail that the harness put there. */
function explain(data) {
  const error = data.details?.error;
  const cause = error?.cause ?? error;
  return String(cause?.stack ?? cause?.message ?? cause);
}

/** Said at once, and again at the end: this may not be reached. */
function fail(name, why) {
  counts.failed += 1;
  failures.push(`\n--- failed: ${name}\n${why}`);
  console.log(failures.at(-1));
}

/** Runs the files, so many at once; gives a promise of their end. */
function runAll(some, concurrency) {
  const stream = run({ files: some, concurrency, timeout: FILE_MS_MAX });
  stream.on('test:pass', (data) => {
    if (isSuite(data)) return;
    if (isFile(data)) {
      fail(data.name, 'it ran no test');
      return;
    }
    if (data.skip !== undefined) counts.skipped += 1;
    else counts.passed += 1;
    show(data, true);
  });
  stream.on('test:fail', (data) => {
    const cause = data.details?.error?.failureType;
    if ((isSuite(data) || isFile(data)) && cause === 'subtestsFailed') return;
    show(data, false);
    fail(data.name, explain(data));
  });
  stream.on('test:stderr', (data) => process.stderr.write(data.message ?? ''));
  stream.resume();
  return once(stream, 'end');
}

const isAtLast = (file) => isIn(AT_LAST, file);
// Given no file at all, Node's runner would look for some itself.
for (const [some, concurrency] of [[files.filter((file) => !isAtLast(file)), SIDE_BY_SIDE],
  [files.filter(isAtLast), AT_LAST_SIDE_BY_SIDE]]) {
  if (some.length > 0) await runAll(some, concurrency);
}
for (const failure of failures) console.log(failure);
const skipped = counts.skipped > 0 ? `${counts.skipped} skipped, ` : '';
console.log(`\nsystem tests: ${skipped}${counts.passed} passed, ${counts.failed} failed`);
process.exitCode = counts.failed > 0 || counts.passed === 0 ? 1 : 0;
