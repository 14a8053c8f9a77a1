// The house rules as a failing test: `node tools/tidy/tidy.mjs` prints what breaks them and where,
// and exits with 1. The rules are in rules.mjs; exceptions, each with its reason, in
// exceptions.json.

import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { findings, judge } from './rules.mjs';

const root = fileURLToPath(new URL('../..', import.meta.url));
const BINARY = /\.(bin|png|ico|jpg|gz|lock)$/;

/** What git would commit: tracked files and new ones that are not ignored. */
function readTree() {
  const list = execFileSync('git', ['ls-files', '-z', '-co', '--exclude-standard'],
    { cwd: root, encoding: 'utf8' });
  const tree = new Map();
  for (const path of list.split('\0')) {
    if (path === '' || !existsSync(join(root, path))) continue;
    tree.set(path, BINARY.test(path) ? '' : readFileSync(join(root, path), 'utf8'));
  }
  return tree;
}

const exceptions = JSON.parse(readFileSync(new URL('exceptions.json', import.meta.url), 'utf8'));
const tree = readTree();
const bad = judge(findings(tree), exceptions);
for (const { rule, path, line, message } of bad) {
  console.log(`${path}:${line}: ${message} [${rule}]`);
}
console.log(`tidy: ${tree.size} files, ${bad.length} findings`);
process.exitCode = bad.length > 0 ? 1 : 0;
