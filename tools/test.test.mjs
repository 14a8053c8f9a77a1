// tools/test.sh with suites of its own: what it counts, and what it runs again.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { tmpdir } from 'node:os';
import { test } from 'node:test';

const HERE = import.meta.dirname;
const [FUNCTIONS] = readFileSync(join(HERE, 'test.sh'), 'utf8')
  .split('# What is to be compiled is compiled once');

// A suite is a shell script; its first argument is a folder of its own.
function run(suites) {
  const folder = mkdtempSync(join(tmpdir(), 'halley-test-'));
  const jobs = Object.entries(suites).map(([name, script]) => {
    writeFileSync(join(folder, name), `cd ${folder}\n${script}`);
    return `job ${name} count_node 20 bash ${join(folder, name)}`;
  });
  const path = join(folder, 'test.sh');
  // Like the script, it begins with `cd` to the parent of its folder.
  writeFileSync(path, `${FUNCTIONS}\n${jobs.join('\n')}\nside_by_side 2\nagain_alone\nreport\n`);
  return new Promise((done) => {
    execFile('bash', [path], (error, stdout) => {
      rmSync(folder, { recursive: true });
      const lines = stdout.trim().split('\n');
      done({ code: error?.code ?? 0, stdout, last: lines.at(-1) });
    });
  });
}

const ran = (passed, names) => [...names.map((name) => `echo 'not ok 1 - ${name}'`),
  `echo '# pass ${passed}'`, `echo '# fail ${names.length}'`,
  `exit ${names.length ? 1 : 0}`].join('\n');
// Fails the first time.
const once = (passed, names) => `if mkdir again 2>/dev/null; then
${ran(passed, names)}
fi
${ran(passed + names.length, [])}`;

test('all pass', async () => {
  const { code, last, stdout } = await run({ a: ran(3, []), b: ran(4, []) });
  assert.equal(last, 'halley: 7 passed, 0 failed');
  assert.equal(code, 0);
  assert.doesNotMatch(stdout, /once more/);
});

test('a test that passes alone is named, and refuses nothing', async () => {
  const { code, last, stdout } = await run({ a: once(3, ['early']), b: ran(4, []) });
  assert.equal(last, 'halley: 8 passed, 0 failed');
  assert.equal(code, 0);
  assert.match(stdout, /ran once more alone; to be mended\n {2}a: early\n/);
});

test('a test that fails twice fails the run', async () => {
  const { code, last, stdout } = await run({ a: ran(3, ['wrong']), b: once(4, ['early']) });
  assert.equal(last, 'halley: 8 passed, 1 failed');
  assert.equal(code, 1);
  assert.match(stdout, /== failed\n {2}a: wrong\n/);
});

test('more than three failures are not run again', async () => {
  const { code, last } = await run({ a: once(3, ['1', '2']), b: ran(4, ['3', '4']) });
  assert.equal(last, 'halley: 7 passed, 4 failed');
  assert.equal(code, 1);
});

test('what the checker of faults has found is not run again', async () => {
  const { code, last } = await run({ faults: once(3, ['lost']), b: ran(4, []) });
  assert.equal(last, 'halley: 7 passed, 1 failed');
  assert.equal(code, 1);
});

test('a suite that ran no test fails', async () => {
  const { code, last } = await run({ a: 'exit 0', b: ran(4, []) });
  assert.equal(last, 'halley: 4 passed, 1 failed');
  assert.equal(code, 1);
});
