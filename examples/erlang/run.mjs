#!/usr/bin/env node
// One command: a Halley and an Erlang back end on a node of its own. The back end is started again
// when it was killed; Halley does that for its brain by itself. Ctrl-C ends them and removes what
// they wrote.
//
//   make build && node examples/erlang/run.mjs

import { execFileSync, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const here = fileURLToPath(new URL('.', import.meta.url));
const launcher = process.env.LAUNCHER ?? fileURLToPath(new URL('../../halley', import.meta.url));
const folder = mkdtempSync(join(tmpdir(), 'halley-desk-'));
const secret = join(folder, 'secret');
const port = process.env.REMOTE_PORT ?? '8090';
/** Between two starts of the back end. */
const DESK_MS = 1_000;
writeFileSync(secret, randomBytes(32).toString('hex'), { mode: 0o600 });

// `make build` unpacks a rebar3 where the system has none.
const unpacked = fileURLToPath(new URL('../../.tools/rebar3/usr/bin', import.meta.url));
execFileSync('rebar3', ['release'], { cwd: here, stdio: ['ignore', 'ignore', 'inherit'],
  env: { ...process.env, PATH: `${process.env.PATH}:${unpacked}`,
    REBAR_BASE_DIR: join(folder, 'build') } });
const release = join(folder, 'build/default/rel/desk/bin/desk');

let isEnding = false;
const halley = spawn(launcher, ['foreground'], { cwd: folder, stdio: 'inherit', env: {
  ...process.env,
  HALLEY_DATA_DIR: join(folder, 'data'),
  HALLEY_REMOTE_LISTEN: `127.0.0.1:${port}`,
  HALLEY_REMOTE_SECRET_FILE: secret,
  HALLEY_REMOTE_BACKENDS: 'desk@127.0.0.1',
} });
let desk;
function startDesk() {
  if (isEnding) return;
  desk = spawn(release, ['foreground'], { cwd: folder, stdio: ['ignore', 'inherit', 'inherit'],
    env: { ...process.env, HALLEY_PORT: port, HALLEY_SECRET_FILE: secret, DESK_DIR: folder } });
  desk.once('exit', () => setTimeout(startDesk, DESK_MS));
}

async function end(code) {
  if (isEnding) return;
  isEnding = true;
  await Promise.all([halley, desk].map((child) => {
    if (child.exitCode !== null || child.signalCode !== null) return null;
    const gone = new Promise((resolve) => { child.once('exit', resolve); });
    child.kill('SIGTERM');
    return gone;
  }));
  rmSync(folder, { recursive: true, force: true });
  process.exit(code);
}
for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => end(0));
halley.once('exit', (code) => end(code ?? 1));
startDesk();

const listen = process.env.HALLEY_PUBLIC_LISTEN ?? '127.0.0.1:8080';
const api = process.env.HALLEY_API_LISTEN ?? '127.0.0.1:8081';
console.log(`listen as a customer:  curl -N http://${listen}/v1/stream?user=ann
and order something:   curl http://${api}/v1/events -d \\
  '{"subject":"orders","data":{"customer":"ann","product":"honey"}}'`);
