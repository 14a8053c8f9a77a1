// Which files the rules look at, with git and without.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import test from 'node:test';
import { fileURLToPath } from 'node:url';
import { listByHand, readTree } from './tree.mjs';

const FILES = {
  '.gitignore': '# built\n/data/\n/halley\n/.tools/\nnode_modules/\n*.log\n',
  'corpus/.gitignore': '*\n!.gitignore\n!*/\n!*/seed-*\n',
  'halley': '', 'data/x': '', '.tools/a/b': '', 'a/node_modules/m/x.js': '', 'a.log': '',
  'b/c/d.log': '', 'corpus/link/found': '', 'corpus/other': '', '.git/config': '',
  'kept.md': 'kept', '.ci/run': '', 'edge/halley/main.rs': '', 'src/data/x': '', 'x.logs': '',
  'corpus/link/seed-a': '',
};
const KEPT = ['.ci/run', '.gitignore', 'corpus/.gitignore', 'corpus/link/seed-a',
  'edge/halley/main.rs', 'kept.md', 'src/data/x', 'x.logs'];

test('without git the files of .gitignore are left out', () => {
  const root = mkdtempSync(join(tmpdir(), 'halley-tree-'));
  try {
    for (const [path, text] of Object.entries(FILES)) {
      mkdirSync(dirname(join(root, path)), { recursive: true });
      writeFileSync(join(root, path), text);
    }
    assert.deepEqual(listByHand(root).sort(), KEPT);
    // Its .git is none that git can read.
    const tree = readTree(root);
    assert.deepEqual([...tree.keys()].sort(), KEPT);
    assert.equal(tree.get('kept.md'), 'kept');
  } finally {
    rmSync(root, { recursive: true, force: true });
  }
});

test('this tree is the same with git and without', (context) => {
  const root = fileURLToPath(new URL('../..', import.meta.url));
  const { status, stdout } = spawnSync('git', ['ls-files', '-z', '-co', '--exclude-standard'],
    { cwd: root, encoding: 'utf8' });
  if (status !== 0) return context.skip('no git, or no checkout');
  const byGit = stdout.split('\0').filter((path) => path !== '' && existsSync(join(root, path)));
  return assert.deepEqual(listByHand(root).sort(), byGit.sort());
});
