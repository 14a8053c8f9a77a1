// Every fault there is: one file each in faults/, with a name, its lane, its frequency in the lane,
// its effects on others (history.mjs, `faults`), and `inject(world, random)`, which causes the
// fault, undoes what must be undone, and may give a note for the timeline.

import { readdirSync } from 'node:fs';

const folder = new URL('../faults/', import.meta.url);
const files = readdirSync(folder).filter((name) => name.endsWith('.mjs')).sort();

export const FAULTS = await Promise.all(files.map(async (name) =>
  (await import(new URL(name, folder))).default));
