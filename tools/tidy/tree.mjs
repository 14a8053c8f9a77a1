// The tree as the rules take it: what git would commit, a `Map` of path to text. A file that is no
// text is there as its SHA-256 in hex.

import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

const BINARY = /\.(bin|png|ico|jpg|gz|lock)$/;

/** Tracked files of the checkout at `root`, and new ones that are not ignored. */
export function readTree(root) {
  const list = execFileSync('git', ['ls-files', '-z', '-co', '--exclude-standard'],
    { cwd: root, encoding: 'utf8' });
  const tree = new Map();
  for (const path of list.split('\0')) {
    if (path === '' || !existsSync(join(root, path))) continue;
    const bytes = readFileSync(join(root, path));
    tree.set(path, BINARY.test(path) ? createHash('sha256').update(bytes).digest('hex')
      : bytes.toString('utf8'));
  }
  return tree;
}
