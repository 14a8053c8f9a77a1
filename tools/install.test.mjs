// The packages that a first run on a bare Debian 12 installs, and those that it doesn't.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import test from 'node:test';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('..', import.meta.url));
const script = readFileSync(new URL('install.sh', import.meta.url), 'utf8');

/** An array of the script. */
const array = (name) =>
  new RegExp(`^${name}=\\(([^)]*)\\)`, 'm').exec(script)[1].trim().split(/\s+/);

function run(program, ...options) {
  const { status, stdout, stderr } = spawnSync(program, options, { cwd: root, encoding: 'utf8' });
  assert.equal(status, 0, stderr);
  return stdout;
}

test('what `make run` installs needs no graphical packages', (context) => {
  if (spawnSync('apt-cache', ['show', 'erlang-wx']).status !== 0) {
    context.skip('no package lists');
    return;
  }
  const without = ['recommends', 'suggests', 'conflicts', 'breaks', 'replaces', 'enhances'];
  const all = run('apt-cache', 'depends', '--recurse', ...without.map((kind) => `--no-${kind}`),
    ...array('run_packages')).split('\n').filter((line) => /^\S/.test(line));
  assert.ok(all.includes('erlang-base'));
  const graphical = all.filter((name) => /-wx|gtk|libx11|^fonts|-observer|-doc$/.test(name));
  assert.deepEqual(graphical, []);
});

test('`make run` builds what runs, `make build` all other programs as well', () => {
  const steps = (target) => run('make', '--dry-run', target);
  assert.match(steps('run'), /cargo build .* --package halley-edge$/m);
  assert.doesNotMatch(steps('run'), /halley-load/);
  assert.match(steps('build'), /cargo build [^\n]* --workspace --exclude halley-cli$/m);
  assert.match(steps('build'), /cargo build [^\n]* --package halley-cli$/m);
  assert.doesNotMatch(steps('run'), /halley-cli/);
  assert.match(steps('build'), /halley-load/);
});

test('`make client` installs what builds the client, and nothing of the tests', () => {
  const steps = run('make', '--dry-run', 'client');
  assert.match(steps, /install\.sh client$/m);
  assert.doesNotMatch(steps, /install\.sh test/);
  const branch = /^ {4}client\) (.*?);;$/ms.exec(script)[1];
  assert.doesNotMatch(branch, /want_test|install_node_packages test|python/);
});

test('`make run` refuses a wrong configuration before it builds', () => {
  const steps = run('make', '--dry-run', 'run');
  assert.ok(steps.indexOf('check-config') < steps.indexOf('cargo build'));
  assert.ok(steps.indexOf('check-config') < steps.indexOf('rebar3 release'));
  const check = (variables) => spawnSync('escript', ['tools/check-config.escript'],
    { cwd: root, encoding: 'utf8', env: { PATH: process.env.PATH, ...variables } });
  const wrong = check({ HALLEY_NODE_NAME: 'nobody', HALLEY_DRAIN_TIME: 'soon' });
  assert.equal(wrong.status, 1, wrong.stderr);
  assert.match(wrong.stderr, /^halley: drain\.time: .*\nhalley: node\.name: .*\n$/);
  const right = check({ HALLEY_NODE_NAME: 'halley@127.0.0.1', HALLEY_DRAIN_TIME: '1s' });
  assert.deepEqual([right.status, right.stderr], [0, '']);
});
