#!/usr/bin/env node
// From a COMMIT in PostgreSQL to the sockets of its followers: the release, brain and edge, with a
// PostgreSQL of its own with fsync on; pgbench writes one message a transaction, at times of chance
// that have the rate, and 16 sessions on streams (`halley-load clients`) get each of them.
//
// A time begins at the server, in the statement whose end is the commit, and ends when one of the
// 16 has read the event from its socket. Two seconds before don't count. Everything is on one
// machine: PostgreSQL, pgbench, brain, edge and the readers share its processors. With `--nice=-10`
// (as root) brain and edge go before the others, nearer to a PostgreSQL on a machine of its own.
//
//   make build && node bench/postgres-edge.mjs --rate 4000 --seconds 20

import { execFile } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { setPriority, tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { Postgres } from '../examples/postgres/postgres.mjs';
import { api } from '../test/lib/client.mjs';
import { prepare } from '../test/lib/halley.mjs';
import { metric } from '../test/lib/metrics.mjs';
import { sleep, until } from '../test/lib/wait.mjs';
import { Clients } from './lib/load.mjs';
import { readOptions } from './lib/options.mjs';
import { fixed, whole } from './lib/words.mjs';

const FOLLOWERS = 16;
const SUBJECTS = 1000;
const CLIENTS = 16;
const WARM_S = 2;
const LAST_MS_MAX = 30_000;

const { rate, seconds, nice } = readOptions('bench/postgres-edge.mjs', {
  rate: { type: 'string', default: '4000' },
  seconds: { type: 'string', default: '20' },
  nice: { type: 'string', default: '0' },
});

/** Changes how brain and edge, all their threads, are scheduled beside the others. */
function renice(halley) {
  const threads = [halley.brainPid(), halley.edgePid()]
    .flatMap((pid) => readdirSync(`/proc/${pid}/task`));
  for (const thread of threads) setPriority(Number(thread), Number(nice));
}

/** What is to be added to PostgreSQL's clock for the readers', CLOCK_MONOTONIC, in nanoseconds. */
function clockOffsetNs() {
  const realNs = BigInt(Math.round((performance.timeOrigin + performance.now()) * 1e6));
  return process.hrtime.bigint() - realNs;
}

/** Runs pgbench. Gives how long each of its transactions took, in microseconds. */
async function committed(postgres, forSeconds) {
  const folder = mkdtempSync(join(tmpdir(), 'halley-pgbench-'));
  const script = join(folder, 'event.sql');
  writeFileSync(script, "select pg_logical_emit_message(true, 'halley', '{\"subject\":\"s' "
    + `|| (random() * ${SUBJECTS - 1})::int || '","data":{"t":' `
    + `|| (extract(epoch from clock_timestamp()) * 1000000000)::int8 + (${clockOffsetNs()}) `
    + "|| '}}');\n");
  const versions = readdirSync('/usr/lib/postgresql').map(Number).filter(Boolean);
  const program = `/usr/lib/postgresql/${Math.max(...versions)}/bin/pgbench`;
  await promisify(execFile)(program, ['-n', '-M', 'prepared', '-c', `${CLIENTS}`, '-j', '1',
    '-R', rate, '-T', `${forSeconds}`, '-f', script, '-l',
    '-h', '127.0.0.1', '-p', `${postgres.port}`, '-U', 'shop', 'postgres'], { cwd: folder });
  // client, transaction, time, script, second and microsecond of its end, lag
  const lines = readdirSync(folder).filter((name) => name.startsWith('pgbench_log'))
    .flatMap((name) => readFileSync(join(folder, name), 'utf8').trimEnd().split('\n'));
  rmSync(folder, { recursive: true });
  return lines.map((line) => line.split(' ').map(Number))
    .map(([, , us, , , , lagUs]) => us - lagUs);
}

function say(what, value, unit = '') {
  process.stdout.write(`${what.padEnd(44)} ${String(value).padStart(12)} ${unit}\n`);
}

function percentiles(what, times) {
  const sorted = times.sort((a, b) => a - b);
  for (const [name, share] of [['p50', 0.5], ['p99', 0.99], ['p99.9', 0.999]]) {
    const at = Math.max(0, Math.round(sorted.length * share) - 1);
    say(`${what}, ${name}`, fixed(sorted[at] / 1000), 'ms');
  }
}

async function measured(postgres, halley) {
  const lines = Array.from({ length: FOLLOWERS * SUBJECTS }, (_, n) =>
    `${1 + n % FOLLOWERS} s${Math.floor(n / FOLLOWERS)}\n`).join('');
  await api(halley, 'POST', '/v1/follows', lines, { 'content-type': 'text/plain' });
  await until('it streams', async () => await metric(halley, 'halley_postgres_streaming') === 1);
  if (nice !== '0') renice(halley);
  const readers = new Clients('--url', halley.publicUrl, '--connections', `${FOLLOWERS}`);
  await readers.ask('ready');
  await committed(postgres, WARM_S);
  await sleep(1000);
  await readers.ask('mark window');
  const took = await committed(postgres, Number(seconds));
  const due = FOLLOWERS * took.length;
  const endMs = Date.now() + LAST_MS_MAX;
  let received = await readers.ask('report');
  while (received.events < due && Date.now() < endMs) {
    await sleep(100);
    received = await readers.ask('report');
  }
  await readers.quit();
  say('transactions with one message', whole(took.length));
  say('a second', whole(took.length / Number(seconds)));
  say(`receipts by ${FOLLOWERS} followers, of ${whole(due)}`, whole(received.events));
  percentiles('commit', took);
  for (const name of ['p50', 'p99', 'p99_9']) {
    say(`commit begun to receipt, ${name.replace('_', '.')}`,
      fixed(received.latency_ms[name]), 'ms');
  }
  return received.events === due;
}

const postgres = await Postgres.start(['max_wal_size = 8GB', 'shared_buffers = 256MB']);
const halley = await prepare({ settings: {
  HALLEY_POSTGRES_URL: postgres.url, HALLEY_POSTGRES_PUBLISH: 'on', HALLEY_LOG_LEVEL: 'error' } });
try {
  const { code, stdout } = await halley.command('postgres', 'setup');
  if (code !== 0) throw new Error(stdout);
  await halley.start();
  process.exitCode = await measured(postgres, halley) ? 0 : 1;
} finally {
  await halley.stop();
  await postgres.stop();
}
