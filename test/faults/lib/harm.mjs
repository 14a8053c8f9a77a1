// Harm for a file at rest. Files in, bytes changed, no knowledge of any format.

import {
  closeSync, cpSync, existsSync, openSync, readdirSync, readFileSync, rmSync, statSync,
  truncateSync, writeSync,
} from 'node:fs';
import { join } from 'node:path';

const BLOCK = 4_096;

function write(path, at, bytes) {
  const descriptor = openSync(path, 'r+');
  writeSync(descriptor, bytes, 0, bytes.length, at);
  closeSync(descriptor);
}

/** Up to three bits, close together or anywhere. */
function flip(path, random) {
  const bytes = readFileSync(path);
  const from = random.int(0, bytes.length - 1);
  const to = random.chance(0.5) ? Math.min(bytes.length - 1, from + 64) : bytes.length - 1;
  const places = Array.from({ length: random.int(1, 3) }, () => random.int(from, to));
  for (const at of places) write(path, at, Buffer.from([bytes[at] ^ (1 << random.int(0, 7))]));
  return `flipped at ${places.join(', ')} of ${bytes.length}`;
}

/** A block of the disk that came back as zeros, or as noise. */
function block(path, random) {
  const { size } = statSync(path);
  const at = BLOCK * random.int(0, Math.floor((size - 1) / BLOCK));
  const noise = random.chance(0.5);
  write(path, at, Buffer.from(Array.from({ length: Math.min(BLOCK, size - at) },
    () => (noise ? random.int(0, 255) : 0))));
  return `${noise ? 'noise' : 'zeros'} from ${at} of ${size}`;
}

function cut(path, random) {
  const { size } = statSync(path);
  const left = random.pick([0, random.int(0, size - 1), Math.max(0, size - random.int(1, 200))]);
  truncateSync(path, left);
  return `cut to ${left} of ${size}`;
}

function remove(path) {
  rmSync(path, { recursive: true });
  return 'removed';
}

const KINDS = { flip, block, cut, remove };

const isOther = (one, other) => existsSync(other)
  && !readFileSync(one).equals(readFileSync(other));

/** Every harm that can come to this file: `[{kind, older?}]`; `olders` are copies of the folder. */
export function harmsOf(folder, path, olders) {
  const here = join(folder, path);
  const { size } = statSync(here);
  const kinds = size === 0 ? ['remove'] : Object.keys(KINDS);
  return [
    ...kinds.map((kind) => ({ path, kind })),
    ...olders.filter((older) => isOther(here, join(older, path)))
      .map((older) => ({ path, kind: 'older', older })),
  ];
}

/** What can come to whole folders: `path` is one there. */
export function folderHarmsOf(folder, olders) {
  return readdirSync(folder, { withFileTypes: true }).filter((entry) => entry.isDirectory())
    .flatMap(({ name }) => [
      { path: name, kind: 'remove' },
      ...olders.filter((older) => existsSync(join(older, name)))
        .map((older) => ({ path: name, kind: 'older', older })),
    ]);
}

/** Does it to the file or folder below `folder`; gives a sentence. */
export function harm(folder, { path, kind, older }, random) {
  const here = join(folder, path);
  if (kind !== 'older') return KINDS[kind](here, random);
  rmSync(here, { recursive: true });
  cpSync(join(older, path), here, { recursive: true });
  return 'swapped with an older copy';
}
