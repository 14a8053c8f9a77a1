// `halley import` and `halley export`: every follow is there once, whatever is killed on the way.

import assert from 'node:assert/strict';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { api } from '../lib/client.mjs';
import { begin, json, run, withHalley } from '../lib/command-line.mjs';
import { start, test } from '../lib/halley.mjs';
import { until } from '../lib/wait.mjs';

/** A file of so many follows, each once: `{path, lines}`. */
function followsFile(halley, lines) {
  const path = join(halley.folder, 'follows.txt');
  const line = (n) => `user-${n % 5_000} subject-${Math.floor(n / 5_000)}\n`;
  writeFileSync(path, Array.from({ length: lines }, (_, n) => line(n)).join(''));
  return { path, lines };
}

const followsOf = async (halley) =>
  Number(/^halley_follows (\d+)$/m.exec((await api(halley, 'GET', '/metrics')).body)[1]);

test('import: bad lines have their numbers and spoil no other', withHalley(async (halley) => {
  const path = join(halley.folder, 'mixed');
  const lines = Array.from({ length: 150_000 }, (_, n) => `u${n} s\n`);
  lines[99_999] = 'three words here\n';
  lines[149_998] = '\n';
  lines[149_999] = 'bob s'; // without a line end
  writeFileSync(path, lines.join(''));
  const told = await run(halley, ['import', path, '--json']);
  assert.equal(told.code, 1);
  assert.match(told.err, /^halley: line 100000: .* \(bad_line\)$/m);
  assert.match(told.err, /1 lines were refused/);
  const { lines: count, added, already, errors } = JSON.parse(told.out);
  assert.deepEqual({ count, added, already, errors },
    { count: 150_000, added: 149_998, already: 0, errors: 1 });
  assert.ok(!existsSync(`${path}.halley-import`), 'what is done leaves no state');
  const [again] = await json(halley, ['import', path], { code: 1 });
  assert.deepEqual([again.added, again.already], [0, 149_998]);
  // Also where errors have no reader.
  const unread = begin(halley, ['import', path, '--json'], { input: '' });
  unread.child.stderr.destroy();
  const silent = await unread.ended;
  assert.deepEqual([silent.code, JSON.parse(silent.out).errors], [1, 1]);
  const [ended] = await json(halley, ['import', '--unfollow', path], { code: 1 });
  assert.deepEqual([ended.removed, ended.absent], [149_998, 0]);

  const ndjson = '{"user":"bob","subject":"ann"}\n{"user":7,"subject":"ann"}\n';
  const piped = await run(halley, 'import -', { input: ndjson });
  assert.match(piped.out, /^2 lines: 2 added, 0 already; /);
  assert.deepEqual(await json(halley, 'followers ann'), [{ user: 'bob' }, { user: '7' }]);
  assert.equal((await run(halley, 'import /nowhere')).code, 7);
  assert.equal((await run(halley, 'import - --state x')).code, 2);
}));

test('import: killed again and again, and the brain too: resumed, and exact',
  withHalley(async (halley) => {
    const { path, lines } = followsFile(halley, 1_200_000);
    // Bad lines everywhere: each is counted once, however often its block is sent.
    const BAD_EVERY = 10_000;
    const withBad = readFileSync(path, 'utf8').split('\n')
      .map((line, n) => (n % BAD_EVERY === 0 && line !== '' ? `this is bad\n${line}` : line));
    writeFileSync(path, withBad.join('\n'));
    const bad = lines / BAD_EVERY;
    const state = `${path}.halley-import`;
    const offset = () =>
      (existsSync(state) ? JSON.parse(readFileSync(state, 'utf8')).done.offset : 0);
    for (const kill of ['program', 'brain', 'program']) {
      const before = offset();
      const words = ['import', path, '--in-flight', '2', '--patience', '60'];
      const importing = begin(halley, words, { input: '' });
      await until('it has come further', () => offset() > before);
      if (kill === 'brain') {
        process.kill(halley.brainPid(), 'SIGKILL');
        const here = offset();
        await until('it goes on', () => offset() > here || !existsSync(state));
      }
      importing.child.kill('SIGKILL');
      const told = await importing.ended;
      assert.equal(/^going on behind line/m.test(told.err), before > 0, told.err);
    }
    const before = offset();
    assert.ok(before > 0, 'there is something left to do');
    const told = await run(halley, ['import', path, '--json']);
    assert.equal(told.code, 1, told.err);
    const { lines: done, added, already, errors, ...rest } = JSON.parse(told.out);
    assert.deepEqual([done, added + already, errors], [lines + bad, lines, bad]);
    assert.ok(rest.resumed_behind_line > 0);
    assert.equal(await followsOf(halley), lines);
    for (const n of [0, 4_999, lines - 1]) {
      const user = `user-${n % 5_000}`;
      assert.ok((await json(halley, ['following', user])).length === lines / 5_000, user);
    }
  }));

test('import: a state of another file, server or direction is not gone on with',
  withHalley(async (halley) => {
    const { path } = followsFile(halley, 800_000);
    const state = `${path}.halley-import`;
    const importing = begin(halley, ['import', path, '--in-flight', '1'], { input: '' });
    await until('it has begun', () => JSON.parse(readFileSync(state, 'utf8')).done.offset > 0);
    const second = await run(halley, ['import', path]);
    assert.equal(second.code, 2);
    assert.match(second.err, /another run is at work with /);
    importing.child.kill('SIGKILL');
    await importing.ended;
    for (const [words, why] of [[['--unfollow'], /another direction/],
      [['--url', 'http://127.0.0.1:1'], /another server, /]]) {
      const told = await run(halley, ['import', path, ...words]);
      assert.equal(told.code, 2);
      assert.match(told.err, why);
    }
    // Made anew: it begins as it did and has another line in its midst, which would be left out.
    const { offset } = JSON.parse(readFileSync(state, 'utf8')).done;
    const old = readFileSync(path, 'utf8');
    const at = old.lastIndexOf('\n', offset - 2) + 1;
    assert.ok(at > 1 << 16, 'behind what tells most inputs from each other');
    writeFileSync(path, `${old.slice(0, at)}new one\n${old.slice(at)}`);
    const anew = await run(halley, ['import', path]);
    assert.equal(anew.code, 2);
    assert.match(anew.err, /is of another input/);
    writeFileSync(path, old);
    const other = join(halley.folder, 'other.txt');
    writeFileSync(other, 'bob ann\n');
    const told = await run(halley, ['import', other, '--state', state]);
    assert.equal(told.code, 2);
    assert.match(told.err, /is of another input; --restart begins anew/);
    assert.equal((await run(halley, ['import', other, '--state', state, '--restart'])).code, 0);
  }));

test('export: all follows, and an import of them is the same again', withHalley(async (halley) => {
  const { path, lines } = followsFile(halley, 30_000);
  await run(halley, ['import', path]);
  await run(halley, ['follow', 'a b', 'with blank', '{"x']);
  const [first, second] = ['one', 'two'].map((name) => join(halley.folder, name));
  const [told] = await json(halley, ['export', first]);
  assert.deepEqual([told.users, told.follows], [5_001, lines + 2]);
  assert.ok(!existsSync(`${first}.halley-export`), 'what is done leaves no state');
  const again = await run(halley, ['export', first]);
  assert.equal(again.code, 2);
  assert.match(again.err, /is there already; --restart replaces it/);
  const edges = await run(halley, ['export', second, '--format', 'edges']);
  assert.equal(edges.code, 2);
  assert.match(edges.err, /use --format ndjson/);
  assert.equal((await json(halley, 'users --all')).length, 5_001);

  const other = await start();
  try {
    await run(other, ['import', first]);
    const piped = await run(other, 'export -');
    assert.match(piped.err, /(^|\n)30,002 follows of 5,001 users\n$/);
    const sorted = (text) => text.split('\n').sort().join('\n');
    assert.equal(sorted(piped.out), sorted(readFileSync(first, 'utf8')));
  } finally {
    other.killAll();
  }
}));

test('export: killed, and resumed without a line twice', withHalley(async (halley) => {
  const { path, lines } = followsFile(halley, 30_000);
  await run(halley, ['import', path]);
  const file = join(halley.folder, 'out');
  const state = `${file}.halley-export`;
  const users = () => (existsSync(state) ? JSON.parse(readFileSync(state, 'utf8')).users : 0);
  const words = ['export', file, '--format', 'edges', '--in-flight', '1'];
  for (let kills = 0; kills < 2; kills += 1) {
    const before = users();
    const exporting = begin(halley, words, { input: '' });
    await until('it has come further', () => users() > before);
    exporting.child.kill('SIGKILL');
    await exporting.ended;
  }
  const told = await run(halley, words);
  assert.equal(told.code, 0, told.err);
  assert.match(told.err, /going on behind \d,000 users/);
  const sorted = (name) => readFileSync(name, 'utf8').split('\n').sort().join('\n');
  assert.equal(sorted(file), sorted(path));
  assert.equal(readFileSync(file, 'utf8').split('\n').length, lines + 1);
}));
