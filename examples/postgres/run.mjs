#!/usr/bin/env node
// One command: a PostgreSQL, a Halley and a shop. Ctrl-C ends them and removes what they wrote.
//
//   make build && node examples/postgres/run.mjs

import { execFileSync, spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Postgres } from './postgres.mjs';
import { openShop } from './shop.mjs';

const launcher = process.env.LAUNCHER ?? fileURLToPath(new URL('../../halley', import.meta.url));
const listen = process.env.HALLEY_PUBLIC_LISTEN ?? '127.0.0.1:8080';
const READY_MS_MAX = 60_000;

if (!existsSync(launcher)) {
  console.error(`there is no ${launcher}: run \`make build\` first`);
  process.exit(1);
}

const folder = mkdtempSync(join(tmpdir(), 'halley-shop-'));
let [postgres, halley, shop] = [];
let isEnding = false;
async function end(code) {
  if (isEnding) return;
  isEnding = true;
  shop?.close();
  if (halley?.exitCode === null) {
    halley.kill('SIGTERM');
    await new Promise((gone) => { halley.once('exit', gone); });
  }
  await postgres?.stop();
  rmSync(folder, { recursive: true, force: true });
  process.exit(code);
}
for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => end(0));

/** Until its public listener answers, whatever it says. */
async function answers() {
  const until = Date.now() + READY_MS_MAX;
  while (Date.now() < until && !isEnding) {
    if (await fetch(`http://${listen}/`).catch(() => undefined)) return;
    await new Promise((later) => { setTimeout(later, 100); });
  }
  if (!isEnding) throw new Error(`Halley doesn't answer at http://${listen}`);
}

async function run() {
  postgres = await Postgres.start();
  postgres.sql(readFileSync(new URL('schema.sql', import.meta.url), 'utf8'));
  const env = {
    ...process.env,
    HALLEY_PUBLIC_LISTEN: listen,
    HALLEY_DATA_DIR: join(folder, 'data'),
    HALLEY_CORS_ORIGINS: 'localhost',
    HALLEY_POSTGRES_URL: postgres.url,
    HALLEY_POSTGRES_FOLLOWS: 'follows(customer, product)',
    HALLEY_POSTGRES_PUBLISH: 'on',
  };
  execFileSync(launcher, ['postgres', 'setup'], { cwd: folder, env, stdio: 'inherit' });
  halley = spawn(launcher, ['foreground'], { cwd: folder, env, stdio: 'inherit' });
  halley.once('exit', (code) => end(code ?? 1));
  await answers();
  shop = await openShop(postgres, `http://${listen}`);
  console.log(`shop: open http://127.0.0.1:${shop.address().port}/?customer=ann and, in another `
    + 'window, ?customer=bob');
}

try {
  await run();
} catch (error) {
  console.error(`the example can't run: ${error.message}`);
  await end(1);
}
