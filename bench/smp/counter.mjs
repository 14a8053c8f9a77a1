// The article's counter server under ApacheBench, the article's tool (Debian's apache2-utils): over
// keep-alive connections, over a connection per request as the article did, and without sockets.
// Every increment must be in the counter at the end.

import { execFile, execFileSync, spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { freePort } from '../../test/lib/halley.mjs';
import { cpuSeconds } from '../lib/process.mjs';
import { say } from '../lib/say.mjs';

const CONCURRENT = 100;
const ALONE_MS = 1_500;
const AB_MS_MAX = 60_000;

/** One round: the counter server once with each setting. */
export async function counterRound(settings, { requests }) {
  const folder = mkdtempSync(join(tmpdir(), 'counter-'));
  const results = {};
  try {
    execFileSync('erlc', ['-o', folder,
      fileURLToPath(new URL('./counter_server.erl', import.meta.url))]);
    for (const setting of settings) {
      say(`counter: ${setting.name}`);
      results[setting.name] = await withServer(folder, setting,
        (server) => measure(server, requests));
    }
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
  return results;
}

async function withServer(folder, { flags }, work) {
  const port = await freePort();
  const child = spawn('erl', [...flags.split(' '), '-noshell', '-pa', folder,
    '-run', 'counter_server', 'start', `${port}`],
  { cwd: folder, stdio: ['pipe', 'pipe', 'inherit'] });
  const gone = new Promise((resolve) => { child.once('close', resolve); });
  try {
    const { value } = await createInterface({ input: child.stdout })[Symbol.asyncIterator]().next();
    if (value !== 'ready') throw new Error(`the counter server said ${value}`);
    return await work({ pid: child.pid, url: `http://127.0.0.1:${port}` });
  } finally {
    child.stdin.end();
    await gone;
  }
}

async function measure({ pid, url }, requests) {
  const timed = async (work) => {
    const before = cpuSeconds(pid);
    const result = await work();
    return { ...result, cpu_s_per_100k: ((cpuSeconds(pid) - before) / result.done) * 1e5 };
  };
  // What it takes to load the code isn't the transactions'.
  const warm = await ab(url, Math.ceil(requests / 10), []);
  const kept = await timed(() => ab(url, requests, ['-k']));
  const fresh = await timed(() => ab(url, requests, []));
  const alone = await timed(async () => {
    const done = await number(`${url}/alone/${CONCURRENT}/${ALONE_MS}`);
    return { done, per_s: done / (ALONE_MS / 1000) };
  });
  const expected = warm.done + kept.done + fresh.done + alone.done;
  const count = await number(`${url}/count`);
  if (count !== expected) throw new Error(`the counter says ${count} after ${expected} increments`);
  return { kept, fresh, alone, count };
}

async function number(url) {
  return Number(await (await fetch(url)).text());
}

/** `-l`: answers grow with the counter, and that is no failure. */
async function ab(url, requests, more) {
  const { stdout } = await promisify(execFile)('ab',
    ['-q', '-l', '-n', `${requests}`, '-c', `${CONCURRENT}`, ...more, `${url}/`],
    { timeout: AB_MS_MAX }).catch((error) => {
    if (error.code === 'ENOENT') throw new Error('ab is missing: apt-get install apache2-utils');
    throw error;
  });
  const figure = (name) => Number(new RegExp(`^${name}:\\s+([0-9.]+)`, 'm').exec(stdout)?.[1] ?? 0);
  const done = figure('Complete requests');
  if (done !== requests || figure('Failed requests') > 0 || figure('Non-2xx responses') > 0) {
    throw new Error(`ab: not all requests were answered: ${stdout}`);
  }
  return { done, per_s: figure('Requests per second') };
}
