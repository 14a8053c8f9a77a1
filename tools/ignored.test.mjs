// Git ignores what README.md and the guides have people make in their checkout: secrets above all.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import test from 'node:test';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('..', import.meta.url));
const read = (path) => readFileSync(new URL(`../${path}`, import.meta.url), 'utf8');
const guides = readdirSync(new URL('../docs/guides', import.meta.url))
  .filter((name) => name.endsWith('.md')).map((name) => `docs/guides/${name}`);

/** A file that a command writes, or that a line of `halley.conf` names, in the checkout itself. */
const MADE = [/(?<![-=|>\w])>>? ?([a-z][\w.-]*)(?=\s|$)/g,
  /\b[a-z]+\.(?:\w*_file|keys|tls_certificate|tls_key|dir) = ([a-z][\w.-]*)(?=\s|$)/g];

/** Of the blocks of code. */
function madeBy(text) {
  const code = text.split(/^```.*$/m).filter((_, n) => n % 2 === 1).join('\n');
  return MADE.flatMap((pattern) => [...code.matchAll(pattern)].map(([, name]) => name));
}

/** By the patterns alone, as far as they name what is in the root. */
const byPatterns = (name, patterns = read('.gitignore').split('\n')) =>
  [`/${name}`, `/${name}/`, name].some((pattern) => patterns.includes(pattern));

/** By git; by the patterns where there is no git, or this is no checkout of it. */
function isIgnored(name) {
  const options = ['check-ignore', '--quiet', '--no-index', name];
  const { status } = spawnSync('git', options, { cwd: root });
  return status === 0 || status === 1 ? status === 0 : byPatterns(name.replace(/\/$/, ''));
}

test('git ignores each file that README.md and the guides have people make', () => {
  const made = new Set(['README.md', ...guides].flatMap((path) => madeBy(read(path))));
  assert.ok(made.has('secret') && made.has('hooks-secret'), `found ${[...made]}`);
  // `data.dir` by default, and where the settings are.
  assert.match(read('halley.conf.example'), /^# data\.dir = data$/m);
  assert.match(read('README.md'), /`halley\.conf`/);
  for (const name of [...made, 'halley.conf', 'data/']) {
    assert.ok(isIgnored(name), `${name} is not in .gitignore`);
    assert.ok(byPatterns(name.replace(/\/$/, '')), `${name}, without git`);
  }
});

test('what is no such file is not ignored, and is found in no text', () => {
  for (const name of ['README.md', 'secrets', 'halley.conf.example']) {
    assert.ok(!isIgnored(name), name);
    assert.ok(!byPatterns(name), name);
  }
  const code = ['echo a > b.txt', 'auth.keys = jwks.json', 'x 2>&1 | y > /dev/null', '() => f'];
  assert.deepEqual(madeBy(['```', ...code, '```', '> quoted'].join('\n')), ['b.txt', 'jwks.json']);
});
