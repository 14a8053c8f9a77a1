// Every fault there is: one file each in faults/, with a name, its lane, how often it comes in its
// lane, what it may do to others (history.mjs, `faults`), and `inject(world, random)`, which does
// its thing, undoes what has to be undone, and may give a note for the timeline.

import { readdirSync } from 'node:fs';

const folder = new URL('../faults/', import.meta.url);
const files = readdirSync(folder).filter((name) => name.endsWith('.mjs')).sort();

export const FAULTS = await Promise.all(files.map(async (name) =>
  (await import(new URL(name, folder))).default));
