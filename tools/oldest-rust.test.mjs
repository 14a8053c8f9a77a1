// Where the oldest Rust is found, and that it isn't left out without a word. Programs of the test's
// own stand for `rustc` and `rustup`.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'node:test';
import { fileURLToPath } from 'node:url';

const script = fileURLToPath(new URL('oldest-rust.sh', import.meta.url));
const oldest = /^rust-version = "(.*)"$/m.exec(
  readFileSync(new URL('../edge/Cargo.toml', import.meta.url), 'utf8'))[1];

/**
 * Runs the script where rustc has this version. `rustup`: nothing for none, else what it does when
 * it is told to install; `has`: whether its Rust is there before.
 */
function run({ rustc, rustup, has = false, words = [] }) {
  const folder = mkdtempSync(join(tmpdir(), 'halley-oldest-'));
  const program = (name, text) =>
    writeFileSync(join(folder, name), `#!/bin/sh\n${text}\n`, { mode: 0o755 });
  const there = join(folder, 'there');
  try {
    for (const name of ['bash', 'dirname', 'grep', 'sed', 'sh']) {
      symlinkSync(spawnSync('which', [name], { encoding: 'utf8' }).stdout.trim(),
        join(folder, name));
    }
    program('rustc', `echo "rustc ${rustc} (0 2026-01-01)"`);
    if (rustup) {
      program('rustup', `case "$1 $2" in
        "toolchain install") ${rustup.replace('THERE', there)};;
        "component list") [ -e ${there} ] && echo clippy-x86_64;;
      esac`);
    }
    if (has) writeFileSync(there, '');
    const { status, stdout, stderr } = spawnSync(script, words,
      { env: { PATH: folder }, encoding: 'utf8' });
    return { status, said: stdout.trim(), stderr, installed: existsSync(there) };
  } finally {
    rmSync(folder, { recursive: true });
  }
}

const newer = '1.999.0';
const fetches = 'echo > THERE';

test('the Rust that is the oldest itself needs nothing more', () => {
  assert.deepEqual(run({ rustc: `${oldest}.1` }),
    { status: 0, said: '+', stderr: '', installed: false });
  assert.equal(run({ rustc: `${oldest}0.0` }).status, 1);
});

test('the one that rustup has is named, and fetched only when that is asked for', () => {
  const there = run({ rustc: newer, rustup: 'exit 1', has: true, words: ['install'] });
  assert.deepEqual([there.status, there.said], [0, `+${oldest}.0`]);
  const fetched = run({ rustc: newer, rustup: fetches, words: ['install'] });
  assert.deepEqual([fetched.status, fetched.said], [0, `+${oldest}.0`]);
  const looked = run({ rustc: newer, rustup: fetches });
  assert.deepEqual([looked.status, looked.said, looked.installed], [1, '', false]);
  assert.match(looked.stderr, /rustup toolchain install/);
});

test('where it can not be had it says so and fails', () => {
  for (const rustup of [undefined, 'exit 1', 'exit 0']) {
    const { status, said, stderr } = run({ rustc: newer, rustup, words: ['install'] });
    assert.deepEqual([status, said], [1, ''], `rustup: ${rustup}`);
    assert.match(stderr, /^Rust .* is not here: /m);
  }
});
