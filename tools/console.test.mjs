// The check that the committed console is built from its sources finds what it is for.

import assert from 'node:assert/strict';
import { appendFileSync, cpSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { BUILT, findings } from '../console/check.mjs';

const scratch = mkdtempSync(join(tmpdir(), 'halley-console-'));
after(() => rmSync(scratch, { recursive: true }));
const [sources, built] = [join(scratch, 'console/'), join(scratch, 'built/')];
const isSource = (path) => !path.includes('node_modules');
cpSync(fileURLToPath(new URL('../console/', import.meta.url)), sources,
  { recursive: true, filter: isSource });
cpSync(BUILT, built, { recursive: true });

test('what is committed is fresh', () => assert.deepEqual(findings(), []));

test('a changed source, a changed or added file of the build: each is found', () => {
  assert.deepEqual(findings(sources, built), []);
  appendFileSync(join(sources, 'src/style.css'), '\n');
  assert.deepEqual(findings(sources, built), ['console/ has changed since it was built']);
  appendFileSync(join(built, 'console.js'), ' ');
  appendFileSync(join(built, 'more.js'), ' ');
  assert.deepEqual(findings(sources, built).slice(1),
    ['console.js is not as it was built', 'more.js is not as it was built']);
});
