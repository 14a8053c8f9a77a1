// Runs the system tests, one file after the other, and ends with `N passed, N failed`.
// `node run.mjs [part of a file name]...` runs the files that match.
//
// Files don't run side by side: each starts a whole Halley, and the machine is small.

import { readdirSync } from 'node:fs';
import { run } from 'node:test';
import { fileURLToPath } from 'node:url';

const FILE_MS_MAX = 120_000;

const folder = fileURLToPath(new URL('.', import.meta.url));
const wanted = process.argv.slice(2);
const files = readdirSync(folder)
  .filter((name) => name.endsWith('.test.mjs'))
  .filter((name) => wanted.length === 0 || wanted.some((part) => name.includes(part)))
  .sort()
  .map((name) => folder + name);

const counts = { passed: 0, failed: 0, skipped: 0 };
const failures = [];

/** A file and a suite end as tests too; only what is inside them counts, unless it never ran. */
function isContainer(data) {
  return data.details?.type === 'suite' || files.includes(data.name);
}

function show(data, passed) {
  const ms = Math.round(data.details?.duration_ms ?? 0);
  console.log(`${'  '.repeat(data.nesting)}${passed ? 'ok  ' : 'FAIL'} ${data.name} (${ms} ms)`);
}

/** What a failed test threw, with the log's tail that the harness put there. */
function explain(data) {
  const error = data.details?.error;
  const cause = error?.cause ?? error;
  return String(cause?.stack ?? cause?.message ?? cause);
}

const stream = run({ files, concurrency: 1, timeout: FILE_MS_MAX });
stream.on('test:pass', (data) => {
  if (isContainer(data)) return;
  if (data.skip !== undefined) counts.skipped += 1;
  else counts.passed += 1;
  show(data, true);
});
stream.on('test:fail', (data) => {
  const cause = data.details?.error?.failureType;
  if (isContainer(data) && cause === 'subtestsFailed') return;
  counts.failed += 1;
  show(data, false);
  failures.push(`${data.name}\n${explain(data)}`);
});
stream.on('test:stderr', (data) => process.stderr.write(data.message ?? ''));
stream.on('end', () => {
  for (const failure of failures) console.log(`\n--- failed: ${failure}`);
  const skipped = counts.skipped > 0 ? `${counts.skipped} skipped, ` : '';
  console.log(`\nsystem tests: ${skipped}${counts.passed} passed, ${counts.failed} failed`);
  process.exitCode = counts.failed > 0 || counts.passed === 0 ? 1 : 0;
});
stream.resume();
