// The package as TypeScript sees it: the README's lines, strictly.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

const CLIENT = fileURLToPath(new URL('..', import.meta.url));
const APP = `
declare function show(data: unknown, at: number): void;
declare function reload(): void;
declare const banner: { hidden: boolean };
`;
const MORE = `
halley.onPresence(({ user, state, data, states }) =>
  show([user, state === 'update', states], data));
await halley.say({ is: 'busy' });
const { id }: { id: string } = await halley.publish(['ann'], 1, { keep: true });
import { connect as listen, HalleyError } from 'halley-client/sse';
listen(id, { user: 'ann' }).onEvent(({ subject, subjects }) => show(subject ?? subjects, 1));
halley.onState((state, why?: HalleyError) => show(state, why?.retryAfterMs ?? 0));
`;

/** What the compiler says of it. */
function check(text) {
  // Inside of the package, which knows itself by its name.
  const folder = mkdtempSync(`${CLIENT}test/types-`);
  try {
    writeFileSync(`${folder}/app.mts`, text);
    return spawnSync(`${CLIENT}node_modules/.bin/tsc`, ['--noEmit', '--strict',
      '--target', 'es2022', '--module', 'nodenext', '--lib', 'es2022,dom,dom.iterable',
      '--types', '', `${folder}/app.mts`], { encoding: 'utf8' }).stdout;
  } finally {
    rmSync(folder, { recursive: true });
  }
}

test('the README\'s lines, and what else there is, have their types', () => {
  const lines = readFileSync(`${CLIENT}README.md`, 'utf8').split('```js\n')[1].split('```')[0];
  assert.equal(check(`${lines}${APP}${MORE}`), '');
});

test('what is wrong is found', () => {
  assert.match(check(`import { connect } from 'halley-client';
    connect('x', { user: 7 }).publish(7, 1);`), /TS2322[^]*TS2345/);
});
