// The parts of an application: its modules, its folders, and the doors of these. A folder may name
// those below it alone, and another folder's doors alone, in calls and in types.

import { erlangCalled, erlangCode, erlangNamed } from './source.mjs';

/** The folders of an application, from top to bottom, and those each may name besides itself. */
export const FOLDERS = {
  halley: {
    start: ['presence', 'publish', 'follows', 'keys', 'online', 'history', 'base'],
    presence: ['publish', 'follows', 'online', 'history', 'base'],
    publish: ['follows', 'online', 'history', 'base'],
    follows: ['online', 'history', 'base'],
    keys: ['online', 'base'],
    online: ['base'],
    history: ['base'],
    base: [],
  },
};

/** The table of an application's doors: a heading for each folder, a row for each door. */
const doorsOf = (app) => `apps/${app}/src/README.md`;

/**
 * The modules of each application: `Map` of app to `Map` of module to
 * `{path, folder, calls, names}`. `names` has types besides `calls`.
 */
export function modulesOf(tree) {
  const apps = new Map();
  for (const [path, text] of tree) {
    const [, app, folder, module] =
      /^apps\/([^/]+)\/src\/(?:(.*)\/)?([a-z0-9_]+)\.erl$/.exec(path) ?? [];
    if (app === undefined) continue;
    if (!apps.has(app)) apps.set(app, new Map());
    const code = erlangCode(text);
    apps.get(app).set(module,
      { path, folder, calls: erlangCalled(code), names: erlangNamed(code) });
  }
  return apps;
}

/**
 * What `circles` asks of modules, asked of their folders: a part is understood with those below it
 * alone. Types count: who names a type must know what it means.
 */
export function* folderFindings(tree) {
  for (const [app, modules] of modulesOf(tree)) {
    const mayName = FOLDERS[app];
    if (mayName === undefined) continue;
    for (const [module, { path, folder, names }] of modules) {
      if (mayName[folder] === undefined) {
        yield { path, line: 1, message: `${module} is in none of the folders of ${app}` };
        continue;
      }
      for (const { module: other, line } of names) {
        const to = modules.get(other)?.folder;
        if (to === folder || mayName[to] === undefined || mayName[folder].includes(to)) continue;
        yield { path, line, message: `${module} must not name ${other}: ${folder} -> ${to}` };
      }
    }
  }
}

/** The rows of a table of doors: `Map` of module to `{folder, line}`. */
function listedIn(text) {
  const listed = new Map();
  let folder = '';
  for (const [index, line] of text.split('\n').entries()) {
    folder = /^## `(\w+)\/`/.exec(line)?.[1] ?? folder;
    const module = /^\| `(\w+)` \|/.exec(line)?.[1];
    if (module !== undefined) listed.set(module, { folder, line: index + 1 });
  }
  return listed;
}

/**
 * Code outside of a folder names its doors alone. Else every module of a part would be a promise to
 * all others, and no part could be rebuilt. A door needs a caller outside.
 */
export function* doorFindings(tree) {
  const apps = modulesOf(tree);
  for (const app of Object.keys(FOLDERS).filter((name) => apps.has(name))) {
    const modules = apps.get(app);
    const listed = listedIn(tree.get(doorsOf(app)) ?? '');
    const asked = new Set();
    for (const [other, others] of apps) {
      for (const [from, { path, folder, names }] of others) {
        for (const { module, line } of names) {
          const to = modules.get(module)?.folder;
          if (to === undefined || (other === app && to === folder)) continue;
          asked.add(module);
          if (listed.get(module)?.folder !== to) {
            yield { path, line, message: `${from} names ${module}, which is no door of ${to}/ `
              + `(${doorsOf(app)}): ask one, or make it one` };
          }
        }
      }
    }
    for (const [module, { line }] of listed) {
      if (!asked.has(module)) {
        yield { path: doorsOf(app), line,
          message: `no code outside names ${module}: take it off the list` };
      }
    }
  }
}
