// The needs of a server under test, and how to find out whether they are there.

import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';

function output(command, args) {
  try {
    return execFileSync(command, args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] });
  } catch {
    return null;
  }
}

export const file = (what, path) => ({ what, is: () => existsSync(path) });
export const program = (what, command, ...args) => ({
  what, is: () => output(command, args) !== null,
});

/** The first thing that a rival lacks; null if it has all. */
export const lacking = (rival) => rival.needs.find(({ is }) => !is())?.what ?? null;

/** The version of a Debian package, without Debian's own part; what is no package is unknown. */
export function packaged(name) {
  const version = output('dpkg-query', ['-W', '-f=${Version}', name]);
  return version === null ? 'unknown' : version.replace(/^\d+:/, '').replace(/[-+].*$/, '');
}
