// Is the committed build that of these sources? `built-from.json` beside it has the SHA-256 of all
// sources, and of each file that was built: a change of either without a build is found, without
// Node packages or a network.

import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const SOURCES = fileURLToPath(new URL('.', import.meta.url));
export const BUILT = fileURLToPath(new URL('../apps/halley_api/priv/console/', import.meta.url));
const NOTE = 'built-from.json';
/** What a build is made of, besides the folders. */
const FILES = ['index.html', 'package.json', 'package-lock.json', 'tsconfig.json', 'build.mjs',
  'vite.config.mjs'];
const FOLDERS = ['public', 'src'];

const sha256 = (text) => createHash('sha256').update(text).digest('hex');

function filesOf(folder) {
  return readdirSync(folder, { withFileTypes: true, recursive: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath ?? entry.path, entry.name));
}

/** What is there now. */
export function builtFrom(sources = SOURCES, built = BUILT) {
  const paths = [...FILES.map((name) => join(sources, name)),
    ...FOLDERS.flatMap((name) => filesOf(join(sources, name)))]
    .map((path) => path.slice(sources.length)).sort();
  const hashes = paths.map((path) => `${path} ${sha256(readFileSync(join(sources, path)))}\n`);
  const files = readdirSync(built).filter((name) => name !== NOTE).sort();
  const entries = files.map((name) => [name, sha256(readFileSync(join(built, name)))]);
  return { sources: sha256(hashes.join('')), files: Object.fromEntries(entries) };
}

/** What is wrong, in words; nothing if the build is fresh. */
export function findings(sources = SOURCES, built = BUILT) {
  let noted;
  try {
    noted = JSON.parse(readFileSync(join(built, NOTE), 'utf8'));
  } catch {
    return [`${NOTE} is missing or no JSON`];
  }
  const now = builtFrom(sources, built);
  const names = [...new Set([...Object.keys(noted.files), ...Object.keys(now.files)])];
  return [
    ...noted.sources === now.sources ? [] : ['console/ has changed since it was built'],
    ...names.filter((name) => noted.files[name] !== now.files[name])
      .map((name) => `${name} is not as it was built`),
  ];
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const found = findings();
  for (const finding of found) console.error(`console: ${finding}; make console builds it anew`);
  process.exitCode = found.length > 0 ? 1 : 0;
}
