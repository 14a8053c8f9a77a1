// The streams of apps/halley_mochiweb pass the tests of the edge's: all that mochiweb.json has.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

const RUN = fileURLToPath(new URL('run.mjs', import.meta.url));
const PASSED_MIN = 60;

test('with SERVER=mochiweb the stream tests pass', async () => {
  const { NODE_TEST_CONTEXT: _, ...env } = process.env;
  const child = spawn(process.execPath, [RUN], { env: { ...env, SERVER: 'mochiweb' } });
  let said = '';
  for (const output of [child.stdout, child.stderr]) {
    output.on('data', (data) => { said += data; });
  }
  const [code] = await once(child, 'exit');
  assert.equal(code, 0, said);
  const [, passed] = /system tests: (\d+) passed, 0 failed/.exec(said);
  assert.ok(Number(passed) >= PASSED_MIN, said);
});
