// The client itself, from its sources, with a browser and a network of the simulator's around it.

import { fileURLToPath } from 'node:url';
import { buildSync } from 'esbuild';

const source = fileURLToPath(new URL('../../src/', import.meta.url));

/** A few, so that a story needs no thousands of events to get beyond them. */
const RECENT_MAX = 8;

/** `changes` are of the built text, `[from, to]` each: what a test plants. */
export function load(globals, changes = []) {
  const { outputFiles: [{ text }] } = buildSync({
    entryPoints: [`${source}index.ts`], write: false, bundle: true, format: 'iife',
    globalName: 'halley', target: 'es2022',
  });
  const all = [[/RECENT_MAX = [\d_e]+/, `RECENT_MAX = ${RECENT_MAX}`], ...changes];
  const code = all.reduce((before, [from, to]) => {
    const then = before.replace(from, to);
    if (then === before) throw new Error(`the client has no ${from}`);
    return then;
  }, text);
  return new Function(...Object.keys(globals), `${code}; return halley;`)(
    ...Object.values(globals));
}
