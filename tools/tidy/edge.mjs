// Which part of the edge may use which (docs/internals/edge.md): a part is a folder, or a file next
// to them. `use crate::` leads down alone, so a part can be read, tested and moved with those below
// it; and within a part no more than three files know each other in a circle. Folders of a part
// that are listed here have layers likewise, and the part's own files may use all of them.

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
const FOLDERS = {
  sessions: [['opening'], ['request'], ['ws'], ['delivery'], ['poll', 'replay', 'subscriptions'],
    ['users'], ['base']],
};
const placesOf = (layers) =>
  new Map(layers.flatMap((parts, layer) => parts.map((part) => [part, layer])));
const LAYER_OF = placesOf(LAYERS);
const FOLDER_LAYER_OF = new Map(Object.entries(FOLDERS).map(([part, layers]) => [part,
  placesOf([[part], ...layers.map((names) => names.map((name) => `${part}/${name}`))])]));
const FILES_IN_A_CIRCLE_MAX = 3;

const partOf = (name) => name.split('/')[0].replace(/\.rs$/, '');
/** The folder of a part that a file is in, or the part. */
const folderOf = (name) => name.split('/').slice(0, -1).slice(0, 2).join('/');
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

/** What is wrong with one file's uses of others, if `layerOf` has the layers of all `placeOf`. */
function* arrowsOf(name, uses, layerOf, placeOf) {
  const [path, place] = [`${ROOT}${name}`, placeOf(name)];
  if (!layerOf.has(place)) {
    yield { path, line: 1, message: `${place} has no layer among the parts of the edge` };
    return;
  }
  for (const { module, line } of uses) {
    const other = placeOf(module);
    if (other !== place && !(layerOf.get(other) > layerOf.get(place))) {
      yield { path, line, message: `${place} must not know ${other}` };
    }
  }
}

/** What it is for is said above. */
export function* edgeFindings(tree) {
  const graph = graphOf(tree);
  for (const [name, uses] of graph) {
    yield* arrowsOf(name, uses, LAYER_OF, partOf);
    const [part, layers] = [partOf(name), FOLDER_LAYER_OF.get(partOf(name))];
    const own = uses.filter(({ module }) => partOf(module) === part);
    if (layers !== undefined) yield* arrowsOf(name, own, layers, folderOf);
  }
  for (const files of componentsOf(graph)) {
    if (files.length > FILES_IN_A_CIRCLE_MAX) {
      yield { path: `${ROOT}${files[0]}`, line: 1,
        message: `${files.length} files that use each other: ${files.join(', ')}` };
    }
  }
}
