// `halley import` of many follows, killed twice and resumed: how fast, and is it exact?
//
// `node bench/import.mjs [follows] [kills]` starts a Halley of its own, makes a file of so many
// follows (15,000,000), imports it with the release's program, kills the program by SIGKILL at
// equal parts of the file, and runs it again each time. It prints each run, and the rate of all.
// Exact means: the server then has as many follows as the file has lines, and a further import of
// the file finds each of them there.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createWriteStream, existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { api } from '../test/lib/client.mjs';
import { start } from '../test/lib/halley.mjs';
import { sleep } from '../test/lib/wait.mjs';

const [FOLLOWS, KILLS] = [Number(process.argv[2] ?? 15_000_000), Number(process.argv[3] ?? 2)];
const FOLLOWS_PER_USER = 15;
const SUBJECTS = 200_000;
const LOOK_EVERY_MS = 50;
const RUN_MS_MAX = 600_000;
const LAUNCHER = process.env.LAUNCHER ?? fileURLToPath(new URL('../halley', import.meta.url));

/** Each follow once: a user follows subjects that are far from each other. */
async function write(path) {
  const file = createWriteStream(path);
  for (let user = 0; user * FOLLOWS_PER_USER < FOLLOWS; user += 1) {
    const first = (user * 7_919) % SUBJECTS;
    const lines = Array.from({ length: FOLLOWS_PER_USER }, (_, n) =>
      `u${user} s${(first + n * 13_007) % SUBJECTS}\n`);
    if (!file.write(lines.join(''))) await once(file, 'drain');
  }
  file.end();
  await once(file, 'close');
}

/** Runs it once, killed when so many bytes are done; gives its words and how long it took. */
async function run(halley, path, killAt) {
  const began = performance.now();
  const child = spawn(LAUNCHER, ['import', path, '--json'], {
    cwd: halley.folder, env: { ...process.env, ...halley.settings }, timeout: RUN_MS_MAX,
  });
  let [out, ended] = ['', false];
  child.stdout.on('data', (data) => { out += data; });
  const close = once(child, 'close').then(() => { ended = true; });
  while (!ended && killAt !== undefined) {
    await Promise.race([close, sleep(LOOK_EVERY_MS)]);
    const state = `${path}.halley-import`;
    const done = existsSync(state) ? JSON.parse(readFileSync(state, 'utf8')).done.offset : 0;
    if (done >= killAt) child.kill('SIGKILL');
  }
  await close;
  const seconds = (performance.now() - began) / 1_000;
  return { seconds, ...(out === '' ? { killed: true } : JSON.parse(out)) };
}

const halley = await start();
try {
  const path = join(halley.folder, 'follows.txt');
  await write(path);
  const bytes = readFileSync(path).length;
  let seconds = 0;
  for (let n = 1; n <= KILLS + 1; n += 1) {
    const told = await run(halley, path, n <= KILLS ? (bytes * n) / (KILLS + 1) : undefined);
    console.log(`run ${n}: ${JSON.stringify(told)}`);
    assert.equal(told.killed === true, n <= KILLS, 'killed where it was to be killed');
    seconds += told.seconds;
  }
  const metrics = (await api(halley, 'GET', '/metrics')).body;
  const stored = Number(/^halley_follows (\d+)$/m.exec(metrics)[1]);
  const rate = Math.round(FOLLOWS / seconds);
  console.log(`stored: ${stored}; ${seconds.toFixed(1)} s in all, ${rate}/s`);
  const again = await run(halley, path);
  console.log(`again: ${JSON.stringify(again)}`);
  assert.equal(stored, FOLLOWS);
  assert.deepEqual([again.added, again.already, again.errors], [0, FOLLOWS, 0]);
} finally {
  halley.killAll();
}
