// The long run of the benchmark, small: its judgement of a machine, its phases, and that a run
// which ends before its time leaves a report that says where and why.

import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { findings, needs, workersFor } from '../../bench/million/check.mjs';
import { leastSquares, references } from '../../bench/million/soak.mjs';
import { until } from '../lib/wait.mjs';

const RUN = fileURLToPath(new URL('../../bench/million/run', import.meta.url));
const BAD_DAY = fileURLToPath(new URL('../../bench/million/bad-day', import.meta.url));
const RUN_MS_MAX = 150_000;

/** A machine that has enough of everything. */
const FIT = { cores: 2, descriptors: 20_000, ports: [32_768, 60_999], threads_max: 100_000,
  conntrack_max: 262_144, conntrack_tracks: false, halt_poll_ns: undefined,
  sysctls: { 'fs.file-max': [10_000_000], 'net.core.somaxconn': [4_096],
    'net.ipv4.tcp_max_syn_backlog': [4_096], 'net.ipv4.tcp_mem': [1e6, 2e6, 3e6],
    'vm.overcommit_memory': [0] } };

const says = (facts, connections = 1_000_000) =>
  [...findings(connections, workersFor(connections, facts), facts)];

test('a machine that is fit gets no advice', () => {
  assert.deepEqual(says(FIT), []);
  assert.equal(workersFor(1_000_000, FIT), 56);
  assert.equal(workersFor(1_000_000, { ...FIT, descriptors: 2_000_000 }), FIT.cores);
});

test('what is in the way is named, and whether the run would fail there', () => {
  const sysctl = (name, ...value) => ({ ...FIT, sysctls: { ...FIT.sysctls, [name]: value } });
  const cases = [
    [sysctl('fs.file-max', 100_000), 'fs.file-max is 100,000', true],
    [{ ...FIT, ports: [50_000, 60_999] }, 'ip_local_port_range has 11,000 ports', true],
    [{ ...FIT, descriptors: 1_000 }, 'raise the limit of open files', true],
    [{ ...FIT, threads_max: 500 }, 'kernel.threads-max is 500', true],
    [{ ...FIT, conntrack_tracks: true }, 'room for 262,144', true],
    [sysctl('vm.overcommit_memory', 2), 'vm.overcommit_memory is 2', true],
    [sysctl('net.core.somaxconn', 128), 'net.core.somaxconn is 128', false],
    [sysctl('net.ipv4.tcp_mem', 10, 20, 30), 'net.ipv4.tcp_mem begins to save', false],
    [{ ...FIT, halt_poll_ns: 0 }, 'guest_halt_poll_ns', false],
  ];
  for (const [facts, words, must] of cases) {
    const found = says(facts);
    assert.equal(found.length, 1, words);
    assert.ok(found[0].says.includes(words), found[0].says);
    assert.equal(found[0].must, must, words);
  }
});

test('the memory for a million is that of its parts', () => {
  const { all, edge, kernel, per_connection: each } =
    needs(1_000_000, { edge: 100, clients: 150, kernel: 8_000 });
  assert.equal(edge, 100e6);
  assert.equal(kernel, 8e9);
  assert.ok(all > 9e9 && all < 10e9, `${all}`);
  assert.equal(each, all / 1_000_000);
});

test('a line through points has its slope, and its error grows with their scatter', () => {
  const exact = leastSquares([[0, 1], [1, 3], [2, 5]]);
  assert.deepEqual([exact.slope, exact.level, exact.standard_error], [2, 3, 0]);
  assert.ok(leastSquares([[0, 1], [1, 4], [2, 5]]).standard_error > 0);
});

test('the article\'s curves end where the run ends', () => {
  const [level, log] = references(300);
  assert.deepEqual(level.points, [[0, 78e6], [300, 78e6]]);
  assert.ok(log.points.length === 5 && log.points.every(([t]) => t <= 300), `${log.points}`);
});

/** Runs `body` with a directory for results. */
async function withFolder(body) {
  const folder = mkdtempSync(join(tmpdir(), 'halley-million-'));
  try {
    await body(folder);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

test('a small run has its phases in table, report and samples', () => withFolder(async (out) => {
  await promisify(execFile)(RUN, ['--connections', '400', '--seconds', '1', '--out', out,
    '--without', 'probe,rates,everyone,killEdge,floor'], { timeout: RUN_MS_MAX });
  const { found, stopped, rows } = JSON.parse(readFileSync(join(out, 'result.json'), 'utf8'));
  assert.equal(stopped, null);
  assert.equal(found.connect.report.connected, 400);
  assert.equal(found.killBrain.dropped, 0);
  assert.equal(found.killBrain.crowd.lost, 0);
  assert.ok(rows.some(([what]) => what.includes('kill -9 of the brain')));
  const lines = readFileSync(join(out, 'samples.jsonl'), 'utf8').trimEnd().split('\n')
    .map((line) => JSON.parse(line));
  assert.ok(lines.some(({ connected, memory_bytes: bytes }) =>
    connected >= 400 && bytes.edge > 0 && bytes.brain > 0));
  assert.ok(lines.some(({ mark }) => mark === 'kill -9 of the brain'));
  const report = readFileSync(join(out, 'report.html'), 'utf8');
  assert.match(report, /<svg role="img" aria-label="Memory by part"/);
  assert.match(readFileSync(join(out, 'table.md'), 'utf8'), /\| connections dropped \| 0 \|/);
}));

test('a small bad day: all connect, none is refused, nothing is lost', () =>
  withFolder(async (out) => {
    await promisify(execFile)(BAD_DAY, ['--connections', '400', '--seconds', '1', '--rate', '200',
      '--posts', '50', '--out', out], { timeout: RUN_MS_MAX });
    const { found, stopped, rows } = JSON.parse(readFileSync(join(out, 'result.json'), 'utf8'));
    assert.equal(stopped, null);
    const { opening, badMoment } = found;
    assert.equal(opening.steady.connected + opening.herd.connected, 400);
    assert.equal(opening.steady.failed + opening.herd.failed, 0);
    assert.ok(opening.published.accepted > 0);
    assert.equal(badMoment.sessions, badMoment.expected);
    assert.equal(badMoment.same_edge, true);
    assert.deepEqual([badMoment.steady.lost, badMoment.herd.failed, badMoment.herd.busy],
      [0, 0, 0]);
    assert.equal(badMoment.crowd.lost, 0);
    assert.ok(rows.some(([what]) => what.includes('longest until the answer')));
  }));

test('a run that takes too much memory ends and says so', () => withFolder(async (out) => {
  const everything = '1000000000';
  const run = promisify(execFile)(RUN, ['--connections', '200', '--out', out,
    '--kept-mb', everything], { timeout: RUN_MS_MAX });
  await assert.rejects(run, ({ code }) => code === 1);
  const { stopped } = JSON.parse(readFileSync(join(out, 'result.json'), 'utf8'));
  assert.match(stopped.why, /memory ran out at 0 connections.* MB were available/);
  assert.match(readFileSync(join(out, 'table.md'), 'utf8'), /\*\*It stopped at: start\.\*\*/);
}));

test('a run that is interrupted says so in its report', () => withFolder(async (out) => {
  const child = spawn(RUN, ['--connections', '200', '--seconds', '1', '--out', out], {
    stdio: 'ignore' });
  const exited = new Promise((resolve) => { child.once('exit', resolve); });
  const samples = join(out, 'samples.jsonl');
  await until('clients connect', () => existsSync(samples)
    && readFileSync(samples, 'utf8').includes('"connected":'), RUN_MS_MAX / 2);
  child.kill('SIGTERM');
  assert.equal(await exited, 1);
  const { stopped } = JSON.parse(readFileSync(join(out, 'result.json'), 'utf8'));
  assert.match(stopped.why, /interrupted \(SIGTERM\)/);
  assert.match(readFileSync(join(out, 'report.html'), 'utf8'), /It stopped at: /);
}));
