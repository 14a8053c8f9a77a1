// Where results are kept: `bench/results/`. Tables, texts and plots are there as they are, raw data
// is compressed, and each has a row in the index. tools/tidy/results.mjs says what the index is;
// `make check` holds the folder against it.

import { mkdirSync, readFileSync, readdirSync, unlinkSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { INDEX, isPlainRaw, updatedIndex } from '../../tools/tidy/results.mjs';
import { readTree } from '../../tools/tidy/tree.mjs';
import { say } from './say.mjs';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));

/** Raw data as a file keeps it. */
export const json = (value) => `${JSON.stringify(value, null, 1)}\n`;

const packed = (content) => gzipSync(content, { level: 9 });

/** Compresses what a run left plain in the checkout at `root`; gives the new paths. */
function packRaw(root) {
  const folder = join(root, dirname(INDEX));
  const plain = readdirSync(folder, { recursive: true }).map((path) => join(folder, path))
    .filter((path) => isPlainRaw(path) && !path.endsWith('.html'));
  for (const path of plain) {
    writeFileSync(`${path}.gz`, packed(readFileSync(path)));
    unlinkSync(path);
  }
  return plain.map((path) => `${path}.gz`);
}

/** Brings folder and index of the checkout at `root` up to date; gives what was compressed. */
export function refreshIndex(root = ROOT) {
  const compressed = packRaw(root);
  writeFileSync(join(root, INDEX), updatedIndex(readTree(root)));
  return compressed;
}

/**
 * Keeps a run: `files` are texts by what comes behind `name` (`{'.md': …, '.json': …}`, or with a
 * folder of its own `{'/table.md': …}`). Raw data gets `.gz`. The index gets their rows.
 */
export function keep(name, files, root = ROOT) {
  const base = join(root, dirname(INDEX), name);
  for (const [suffix, text] of Object.entries(files)) {
    const path = base + suffix;
    mkdirSync(dirname(path), { recursive: true });
    if (isPlainRaw(path)) writeFileSync(`${path}.gz`, packed(text));
    else writeFileSync(path, text);
    say(`saved ${path}${isPlainRaw(path) ? '.gz' : ''}`);
  }
  try {
    refreshIndex(root);
    say(`its rows are in ${INDEX}: look at them, and link the result from the page that needs it`);
  } catch (error) {
    // Without git, or with an index that can't be written: the figures are safe.
    say(`${INDEX} has no rows for it yet, bench/index makes them: ${error.message}`);
  }
}
