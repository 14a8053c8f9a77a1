// `./halley` with a command over HTTP, as a test of the command line runs it.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { LAUNCHER, start } from './halley.mjs';

/** What a test that fails leaves running would keep its file from its end. */
const begun = new Set();

/** Starts `./halley words…` there: `{child, ended}`, `ended` resolves to `{code, out, err}`. */
export function begin(halley, words, { input, env = {} } = {}) {
  const settings = { ...process.env, ...halley.settings, HALLEY_TIMEOUT: '10', ...env };
  const child = spawn(LAUNCHER, words, { cwd: halley.folder, env: settings });
  begun.add(child);
  child.on('close', () => begun.delete(child));
  let [out, err] = ['', ''];
  child.stdout.on('data', (data) => { out += data; });
  child.stderr.on('data', (data) => { err += data; });
  child.stdin.on('error', () => {}); // it may end before it has read all
  if (input !== undefined) child.stdin.end(input);
  const ended = once(child, 'close').then(([code]) => ({ code, out, err }));
  return { child, ended, output: () => out };
}

/** Runs it to its end: `{code, out, err}`. */
export const run = (halley, line, options) =>
  begin(halley, Array.isArray(line) ? line : line.split(' '), { input: '', ...options }).ended;

/** Runs it and insists on its status; gives what `--json` printed, a value for each line. */
export async function json(halley, line, { code = 0, ...options } = {}) {
  const words = Array.isArray(line) ? line : line.split(' ');
  const told = await run(halley, [...words, '--json'], options);
  assert.equal(told.code, code, JSON.stringify({ words, ...told }));
  return told.out.split('\n').filter(Boolean).map((text) => JSON.parse(text));
}

/** A Halley for the body of a test. */
export const withHalley = (body, options) => async (context) => {
  const halley = await start(options);
  try {
    await body(halley, context);
  } finally {
    for (const child of begun) child.kill();
    halley.killAll();
  }
};
