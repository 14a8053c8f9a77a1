// The tree as the rules take it: what git would commit, a `Map` of path to text. A file that is no
// text is there as its SHA-256 in hex; what a build wrote into the tree isn't there. Where there is
// no git, or no checkout of it, the files of .gitignore are read here, as far as gitignore(5) is
// used in this tree.

import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

const BUILT = /\.min\.js$/;
const BINARY = /\.(bin|png|ico|jpg|gz|lock)$/;

/** Tracked files of the checkout at `root`, and new ones that are not ignored. */
export function readTree(root) {
  const tree = new Map();
  for (const path of listByGit(root) ?? listByHand(root)) {
    if (path === '' || BUILT.test(path) || !existsSync(join(root, path))) continue;
    const bytes = readFileSync(join(root, path));
    tree.set(path, BINARY.test(path) ? createHash('sha256').update(bytes).digest('hex')
      : bytes.toString('utf8'));
  }
  return tree;
}

/** Undefined where git doesn't know this folder as the top of a checkout. */
function listByGit(root) {
  if (!existsSync(join(root, '.git'))) return undefined;
  try {
    return execFileSync('git', ['ls-files', '-z', '-co', '--exclude-standard'],
      { cwd: root, encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }).split('\0');
  } catch {
    return undefined;
  }
}

/** Paths below `root` that no .gitignore names. */
export function listByHand(root, folder = '', above = []) {
  const ignored = [...above, ...patterns(root, folder)];
  const paths = [];
  for (const entry of readdirSync(join(root, folder), { withFileTypes: true })) {
    const path = folder + entry.name;
    const isFolder = entry.isDirectory();
    // The last pattern that matches decides.
    const decides = ignored.findLast(({ regex, foldersOnly }) =>
      regex.test(path) && (isFolder || !foldersOnly));
    if (entry.name === '.git' || decides?.ignores) continue;
    if (isFolder) paths.push(...listByHand(root, `${path}/`, ignored));
    else paths.push(path);
  }
  return paths;
}

function patterns(root, folder) {
  const file = join(root, folder, '.gitignore');
  if (!existsSync(file)) return [];
  const lines = readFileSync(file, 'utf8').split('\n').map((line) => line.trim());
  return lines.filter((line) => line !== '' && !line.startsWith('#')).map((line) => {
    const [, not, pattern, slash] = /^(!?)(.*?)(\/?)$/.exec(line);
    const glob = pattern.replace(/^\//, '').replace(/[.+^${}()|[\]\\]/g, '\\$&')
      .replaceAll('*', '[^/]*').replaceAll('?', '[^/]');
    const anywhere = pattern.includes('/') ? '' : '(.*/)?';
    return { regex: new RegExp(`^${folder.replace(/[.+]/g, '\\$&')}${anywhere}${glob}$`),
      foldersOnly: slash !== '', ignores: not === '' };
  });
}
