// Which part of the edge may use which (docs/internals/edge.md): a part is a folder, or a file next
// to them. `use crate::` leads down alone, so a part can be read, tested and moved with those below
// it; and within a part no more than three files know each other in a circle.

import { componentsOf } from './circles.mjs';
import { lineOf, rustCode, withoutTests } from './source.mjs';

const ROOT = 'edge/halley-edge/src/';

/** From the top down. Parts of one layer don't know each other. */
const LAYERS = [
  ['main'],
  ['worker'],
  ['http'],
  ['sessions', 'trunk'],
  ['link', 'groups'],
  ['conns'],
  ['outbox'],
  ['settings', 'sandbox', 'user'],
  ['config', 'proxies', 'transport', 'stats'],
  ['limits', 'clock', 'slab', 'side_table', 'socket', 'log', 'random'],
];
const LAYER_OF = new Map(LAYERS.flatMap((parts, layer) => parts.map((part) => [part, layer])));
const FILES_IN_A_CIRCLE_MAX = 3;

const partOf = (name) => name.split('/')[0].replace(/\.rs$/, '');
const isTest = (name) => /(^|\/|_)(tests?|sizes)\.rs$/.test(name);

/** The paths that a file uses of its own crate: `{segments, index}`. */
function* usesOf(code) {
  for (const match of code.matchAll(/(?<!\bin )\bcrate((?:::\w+)*)(::\{[^}]*\})?/g)) {
    const segments = match[1].split('::').slice(1);
    const several = match[2]?.slice(3, -1).split(',').map((item) => item.trim()) ?? [''];
    for (const item of several) {
      const more = item.split('::').filter((word) => /^\w+$/.test(word) && word !== 'self');
      yield { segments: [...segments, ...more], index: match.index };
    }
  }
}

/** The file that a path of modules leads to; what behind it is no module is in that file. */
function fileOf(files, segments) {
  for (let length = segments.length; length > 0; length -= 1) {
    const path = segments.slice(0, length).join('/');
    const found = [`${path}.rs`, `${path}/mod.rs`].find((name) => files.has(name));
    if (found !== undefined) return found;
  }
  return undefined;
}

/** What the edge's files use of each other, by their names: `{module, line}`. */
function graphOf(tree) {
  const files = new Map([...tree].filter(([path]) => path.startsWith(ROOT) && path.endsWith('.rs'))
    .map(([path, text]) => [path.slice(ROOT.length), withoutTests(rustCode(text))])
    .filter(([name]) => !isTest(name)));
  return new Map([...files].map(([name, code]) => [name, [...usesOf(code)]
    .map(({ segments, index }) => ({ module: fileOf(files, segments), line: lineOf(code, index) }))
    .filter(({ module }) => module !== undefined && module !== name)]));
}

/** What it is for is said above. */
export function* edgeFindings(tree) {
  const graph = graphOf(tree);
  for (const [name, uses] of graph) {
    const [path, part] = [`${ROOT}${name}`, partOf(name)];
    if (!LAYER_OF.has(part)) {
      yield { path, line: 1, message: `${part} has no layer among the parts of the edge` };
      continue;
    }
    for (const { module, line } of uses) {
      const other = partOf(module);
      if (other !== part && !(LAYER_OF.get(other) > LAYER_OF.get(part))) {
        yield { path, line, message: `${part} must not know ${other}` };
      }
    }
  }
  for (const files of componentsOf(graph)) {
    if (files.length > FILES_IN_A_CIRCLE_MAX) {
      yield { path: `${ROOT}${files[0]}`, line: 1,
        message: `${files.length} files that use each other: ${files.join(', ')}` };
    }
  }
}
