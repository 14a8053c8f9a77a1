// Damage to the log's files, and whose records it hits. The checker knows the format no better than
// this: a record has its event as JSON, with the id in it, and the records stand in a row.

import {
  closeSync, openSync, readdirSync, readFileSync, truncateSync, writeFileSync, writeSync,
} from 'node:fs';
import { join } from 'node:path';

const NAME = /"id":"([^"]{1,255})"/g;

/** The files below a folder, by their paths from there, in order. */
export function filesOf(folder, below = '') {
  return readdirSync(join(folder, below), { withFileTypes: true })
    .sort((a, b) => (a.name < b.name ? -1 : 1))
    .flatMap((entry) => {
      const path = join(below, entry.name);
      if (entry.isDirectory()) return filesOf(folder, path);
      return entry.isFile() ? [path] : [];
    });
}

/** Where each id stands in the bytes: `[{id, index}]` in order. */
function idsIn(bytes) {
  return [...bytes.toString('latin1').matchAll(NAME)].map(({ 1: id, index }) => ({ id, index }));
}

/** Where the written part of a file ends: what follows may be zeros, allocated in advance. */
function endOf(bytes) {
  let end = bytes.length;
  while (end > 0 && bytes[end - 1] === 0) end -= 1;
  return end;
}

function mark(history, ids, why) {
  for (const { id } of ids) if (history.events.has(id)) history.damage.set(id, why);
  return ids.length;
}

/** Takes the last `count` written bytes away. Gives how many records it hit. */
export function cutTail(history, file, count) {
  const bytes = readFileSync(file);
  const end = endOf(bytes);
  const from = Math.max(0, end - count);
  const ids = idsIn(bytes);
  const before = ids.findLastIndex(({ index }) => index < from);
  // What is gone was written behind the last event that the cut left, if only its beginning.
  const left = ids.slice(0, before + 1).findLast(({ id }) => history.events.has(id));
  truncateSync(file, from);
  history.tailCut(left ? history.events.get(left.id).begun : 0);
  return mark(history, ids.slice(Math.max(0, before)), 'the checker cut the tail');
}

/** Writes `garbage` behind what is written. Hits no record. */
export function appendGarbage(file, garbage) {
  const bytes = readFileSync(file);
  writeFileSync(file, Buffer.concat([bytes.subarray(0, endOf(bytes)), garbage]));
}

/** Flips a bit at about `place` (0 to 1) of what is written. Gives how many records it may hit. */
export function flipBit(history, file, place, bit) {
  const bytes = readFileSync(file);
  const ids = idsIn(bytes);
  const at = Math.floor(place * endOf(bytes));
  if (ids.length === 0) return 0;
  const next = ids.findIndex(({ index }) => index > at);
  const hit = next < 0 ? ids.slice(-1) : ids.slice(Math.max(0, next - 1), next + 1);
  const count = mark(history, hit, 'the checker flipped a bit');
  const descriptor = openSync(file, 'r+');
  writeSync(descriptor, Buffer.from([bytes[at] ^ (1 << bit)]), 0, 1, at);
  closeSync(descriptor);
  return count;
}
