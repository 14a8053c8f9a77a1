// The index of measurements: each way in which folder, index and pages can disagree is found, and
// the output of `bench/index` and `--save` obeys the rule.

import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { gunzipSync } from 'node:zlib';
import { json, keep, refreshIndex } from '../../bench/lib/keep.mjs';
import { INDEX, resultFindings, updatedIndex } from './results.mjs';
import { readTree } from './tree.mjs';

const HEAD = ['# Measured', '',
  '| result | shows | date | commit | command | machine | cited by |',
  '| --- | --- | --- | --- | --- | --- | --- |'];
const RAW_HEAD = ['', '| raw data | SHA-256 |', '| --- | --- |'];
const SUM = 'a'.repeat(64);
const ROW = '| [x.md](x.md) | How fast | 2026-01-02 | 1234567 | `bench/run` | 2 cores, 24 GB | '
  + '[a.md](../../docs/a.md) |';
const RAW_ROW = `| [x.json.gz](x.json.gz) | \`${SUM}\` |`;
const EMPTY = [...HEAD, ...RAW_HEAD, ''].join('\n');
const TABLE = ['# How fast, 2026-01-02', '',
  '2 cores (Intel(R) Xeon(R) Processor), 24 GB, Linux 6.18, commit 1234567 with changes.', '',
  'Made by `bench/run --save`; medians of 3 rounds.', ''].join('\n');

const index = (rows, rawRows) => [...HEAD, ...rows, ...RAW_HEAD, ...rawRows, ''].join('\n');
const WHOLE = {
  [INDEX]: index([ROW], [RAW_ROW]),
  'bench/results/x.md': TABLE,
  'bench/results/x.json.gz': SUM,
  'docs/a.md': 'It is [fast](../bench/results/x.md).\n',
};

const treeOf = (changes) => new Map(Object.entries({ ...WHOLE, ...changes })
  .filter(([, text]) => text !== null));
const found = (changes) => [...resultFindings(treeOf(changes))];

test('folder, index and pages that agree', () => assert.deepEqual(found({}), []));

const wrongs = {
  'a result without a row': [{ [INDEX]: index([], [RAW_ROW]) }, 'bench/results/x.md', /not in/],
  'raw data without a row': [{ [INDEX]: index([ROW], []) }, 'bench/results/x.json.gz', /not in/],
  'a result in the table of raw data':
    [{ [INDEX]: index([ROW], [RAW_ROW, `| [y.txt](y.txt) | \`${SUM}\` |`]),
      'bench/results/y.txt': SUM }, 'bench/results/y.txt', /not in/],
  'a row whose file is gone':
    [{ [INDEX]: index([ROW, ROW.replaceAll('x.md', 'gone.md')], [RAW_ROW]) }, INDEX,
      /gone\.md, which is not there/],
  'a row of raw data whose file is gone':
    [{ 'bench/results/x.json.gz': null }, INDEX, /x\.json\.gz, which is not there/],
  'raw data that was changed': [{ 'bench/results/x.json.gz': 'b'.repeat(64) }, INDEX, /SHA-256/],
  'raw data of no result':
    [{ [INDEX]: index([ROW], [RAW_ROW, `| [y.json.gz](y.json.gz) | \`${SUM}\` |`]),
      'bench/results/y.json.gz': SUM }, 'bench/results/y.json.gz', /without .*y\.md/],
  'raw data that is not compressed':
    [{ 'bench/results/x.jsonl': '{}\n' }, 'bench/results/x.jsonl', /compressed/],
  'a report': [{ 'bench/results/r/report.html': '<p>' }, 'bench/results/r/report.html', /draws it/],
  'a result that no page cites': [{ 'docs/a.md': 'It is fast.\n' }, INDEX, /no page cites/],
  'a result that only the index and another result cite':
    [{ 'docs/a.md': 'It is fast.\n', 'bench/results/x.md': `${TABLE}[x](x.md)\n` }, INDEX,
      /no page cites/],
  'a page that cites it and is not named':
    [{ 'bench/README.md': '[fast](results/x.md)\n' }, INDEX, /cited by .*bench\/README\.md/],
  'a page that is named and cites it no more':
    [{ 'docs/a.md': 'It is fast.\n', 'docs/b.md': '[x](../bench/results/x.md)' }, INDEX, /b\.md/],
  'a cell that nobody filled': [{ [INDEX]: index([ROW.replace('1234567', '?')], [RAW_ROW]) }, INDEX,
    /a cell/],
  'an empty cell': [{ [INDEX]: index([ROW.replace('How fast', '')], [RAW_ROW]) }, INDEX, /a cell/],
  'a row with a cell too few':
    [{ [INDEX]: index([ROW.replace(' 1234567 |', '')], [RAW_ROW]) }, INDEX, /a cell/],
};
for (const [what, [changes, path, message]] of Object.entries(wrongs)) {
  test(`found: ${what}`, () => {
    const [first, ...more] = found(changes);
    assert.equal(first?.path, path);
    assert.match(first.message, message);
    assert.deepEqual(more, []);
  });
}

test('an index is made from what the results say, and is its own update', () => {
  const tree = treeOf({ [INDEX]: EMPTY });
  const made = updatedIndex(tree);
  assert.equal(made, WHOLE[INDEX].replace('1234567', '1234567 with changes')
    .replace('`bench/run`', '`bench/run --save`').replace('2026-01-02', '?')
    .replace('2 cores', '2 cores (Intel(R) Xeon(R) Processor)'));
  assert.equal(updatedIndex(new Map([...tree, [INDEX, made]])), made);
});

test('an update keeps what was written by hand, and drops rows of what is gone', () => {
  const before = index([ROW, ROW.replaceAll('x.md', 'gone.md')], [RAW_ROW]);
  const page = { 'bench/README.md': '[fast](results/x.md)\n' };
  const after = updatedIndex(treeOf({ [INDEX]: before, ...page }));
  const cited = '[bench/README.md](../README.md), [a.md]';
  assert.equal(after, WHOLE[INDEX].replace('[a.md]', cited));
  assert.deepEqual(found({ [INDEX]: after, ...page }), []);
});

/** Runs `body` in a tree with an empty index and a page. */
function inCheckout(body) {
  const root = mkdtempSync(join(tmpdir(), 'halley-results-'));
  try {
    for (const [path, text] of [[INDEX, EMPTY], ['a.md', '[x](bench/results/2026-01-02-x.md) '
      + '[y](bench/results/2026-01-02-y/table.md)\n']]) {
      mkdirSync(dirname(join(root, path)), { recursive: true });
      writeFileSync(join(root, path), text);
    }
    body(root, (path) => readFileSync(join(root, 'bench/results', path)));
  } finally {
    rmSync(root, { recursive: true, force: true });
  }
}

test('what --save keeps is what the rule asks for', () => inCheckout((root, read) => {
  const raw = { figures: [1, 2] };
  keep('2026-01-02-x', { '.md': TABLE, '.json': json(raw) }, root);
  keep('2026-01-02-y', { '/table.md': TABLE, '/samples.jsonl': '{"t_s":1}\n' }, root);
  assert.deepEqual([...resultFindings(readTree(root))], []);
  assert.deepEqual(JSON.parse(gunzipSync(read('2026-01-02-x.json.gz'))), raw);
  assert.equal(`${gunzipSync(read('2026-01-02-y/samples.jsonl.gz'))}`, '{"t_s":1}\n');
  const sum = createHash('sha256').update(read('2026-01-02-x.json.gz')).digest('hex');
  assert.ok(`${read('README.md')}`.includes(`(2026-01-02-x.json.gz) | \`${sum}\` |`));
}));

test('raw data that was left plain is compressed', () => inCheckout((root, read) => {
  const plain = join(root, 'bench/results/2026-01-02-x.json');
  writeFileSync(join(root, 'bench/results/2026-01-02-x.md'), TABLE);
  writeFileSync(plain, '{}\n');
  assert.deepEqual(refreshIndex(root), [`${plain}.gz`]);
  assert.equal(existsSync(plain), false);
  assert.equal(`${gunzipSync(read('2026-01-02-x.json.gz'))}`, '{}\n');
  assert.deepEqual([...resultFindings(readTree(root))], []);
}));
