// The suite itself: what it says of a client that does everything wrong, and of no client at all.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import test from 'node:test';
import { fileURLToPath } from 'node:url';

const path = (name) => fileURLToPath(new URL(name, import.meta.url));

function run(...options) {
  const { status, stdout } = spawnSync(process.execPath, [path('run.mjs'), ...options],
    { encoding: 'utf8' });
  return { status, verdict: stdout.trimEnd().split('\n').at(-1) };
}

const naive = [process.execPath, path('lib/naive.mjs')];

for (const [part, failed] of [
  ['is resumed behind', 3], ['comes twice', 3], ['Retry-After is kept to', 3],
  ['finds nobody', 1], ['a cursor that it is given', 1], ['themselves is handed on', 3],
]) {
  test(`a client that does it wrong fails "${part}"`, () => {
    assert.deepEqual(run('--only', part, ...naive),
      { status: 1, verdict: `client tests: 0 passed, ${failed} failed` });
  });
}

test('what it does right passes', () => {
  assert.deepEqual(run('--only', 'what it does not know', ...naive),
    { status: 0, verdict: 'client tests: 3 passed, 0 failed' });
});

test('no such case is no success', () => {
  assert.deepEqual(run('--only', 'no such case', ...naive),
    { status: 1, verdict: 'client tests: 0 passed, 0 failed' });
});

test('an adapter that does not start fails', () => {
  assert.deepEqual(run('--only', 'no token any more', path('no-such-file')),
    { status: 1, verdict: 'client tests: 0 passed, 1 failed' });
});
