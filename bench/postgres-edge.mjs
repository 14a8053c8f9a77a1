#!/usr/bin/env node
// From a COMMIT in PostgreSQL to the sockets of its followers: the release, brain and edge, beside
// a PostgreSQL of its own with fsync on; pgbench writes one message a transaction, at times of
// chance that have the rate, and 16 sessions on streams get each of them.
//
// A time begins at the server, in the statement whose end is the commit, and ends when the last of
// the 16 has read the event from its socket, here. The first two seconds don't count. Everything is
// on one machine: PostgreSQL, pgbench, brain, edge and this reader share its processors.
//
//   make build && node bench/postgres-edge.mjs --rate 4000 --seconds 20

import { execFile } from 'node:child_process';
import { connect } from 'node:net';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { Postgres } from '../examples/postgres/postgres.mjs';
import { api } from '../test/lib/client.mjs';
import { prepare } from '../test/lib/halley.mjs';
import { metric } from '../test/lib/metrics.mjs';
import { sleep, until } from '../test/lib/wait.mjs';
import { readOptions } from './lib/options.mjs';
import { fixed, whole } from './lib/words.mjs';

const FOLLOWERS = 16;
const SUBJECTS = 1000;
const CLIENTS = 16;
const WARM_US = 2e6;
const LAST_MS_MAX = 30_000;
/** Of an event on a stream: the data is its number and when its statement was run. */
const DATA = /"data":\[(\d+),(\d+)\]/g;
const PARTIAL_MAX = 512;

const nowUs = () => (performance.timeOrigin + performance.now()) * 1000;

const { rate, seconds } = readOptions('bench/postgres-edge.mjs', {
  rate: { type: 'string', default: '4000' },
  seconds: { type: 'string', default: '20' },
});

/** By an event's number: how many have it, when it began and when the last one had it. */
const events = new Map();

function received(number, begunUs, atUs) {
  const event = events.get(number);
  if (event === undefined) events.set(number, { begunUs, count: 1, atUs });
  else {
    event.count += 1;
    event.atUs = atUs;
  }
}

function follower(halley, user) {
  const socket = connect(halley.publicPort, '127.0.0.1');
  let rest = '';
  socket.on('data', (bytes) => {
    const atUs = nowUs();
    const text = rest + bytes.toString('latin1');
    let end = 0;
    for (const found of text.matchAll(DATA)) {
      received(Number(found[1]), Number(found[2]), atUs);
      end = found.index + found[0].length;
    }
    rest = text.slice(Math.max(end, text.length - PARTIAL_MAX));
  });
  socket.write(`GET /v1/stream?user=${user} HTTP/1.1\r\nHost: bench\r\n`
    + 'Accept: text/event-stream\r\n\r\n');
  return socket;
}

/** Runs pgbench. Gives when each of its transactions began, and how long it took. */
async function committed(postgres) {
  const folder = mkdtempSync(join(tmpdir(), 'halley-pgbench-'));
  const script = join(folder, 'event.sql');
  writeFileSync(script, `\\set n :n + ${CLIENTS}\n`
    + "select pg_logical_emit_message(true, 'halley', '{\"subject\":\"s' || :n::int % "
    + `${SUBJECTS} || '\",\"data\":[' || (:n::int + :client_id::int) || ',' `
    + "|| (extract(epoch from clock_timestamp()) * 1000000)::int8 || ']}');\n");
  const versions = readdirSync('/usr/lib/postgresql').map(Number).filter(Boolean);
  const program = `/usr/lib/postgresql/${Math.max(...versions)}/bin/pgbench`;
  await promisify(execFile)(program, ['-n', '-M', 'prepared', '-c', `${CLIENTS}`, '-j', '1',
    '-R', rate, '-T', `${Number(seconds) + WARM_US / 1e6}`, '-D', 'n=1', '-f', script, '-l',
    '-h', '127.0.0.1', '-p', `${postgres.port}`, '-U', 'shop', 'postgres'], { cwd: folder });
  // client, transaction, time, script, second and microsecond of its end, lag
  const lines = readdirSync(folder).filter((name) => name.startsWith('pgbench_log'))
    .flatMap((name) => readFileSync(join(folder, name), 'utf8').trimEnd().split('\n'));
  rmSync(folder, { recursive: true });
  return lines.map((line) => line.split(' ').map(Number)).map(([, , us, , endS, endUs, lagUs]) =>
    ({ begunUs: endS * 1e6 + endUs - (us - lagUs), tookUs: us - lagUs }));
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
  const users = Array.from({ length: FOLLOWERS }, (_, n) => `u${n}`);
  for (const user of users) {
    const lines = Array.from({ length: SUBJECTS }, (_, n) => `${user} s${n}\n`).join('');
    await api(halley, 'POST', '/v1/follows', lines, { 'content-type': 'text/plain' });
  }
  await until('it streams', async () => await metric(halley, 'halley_postgres_streaming') === 1);
  const sockets = users.map((user) => follower(halley, user));
  await until('all are there', async () => await metric(halley, 'halley_sessions') === FOLLOWERS);
  const beginUs = nowUs() + WARM_US;
  const commits = await committed(postgres);
  const isWhole = () => events.size === commits.length
    && [...events.values()].every(({ count }) => count === FOLLOWERS);
  const endMs = Date.now() + LAST_MS_MAX;
  while (!isWhole() && Date.now() < endMs) await sleep(100);
  for (const socket of sockets) socket.destroy();
  const all = [...events.values()];
  say('transactions with one message', whole(commits.length));
  say(`messages that not all ${FOLLOWERS} have, or twice`,
    commits.length - all.filter(({ count }) => count === FOLLOWERS).length);
  const counted = all.filter(({ begunUs }) => begunUs >= beginUs);
  say('messages a second', whole(counted.length / Number(seconds)));
  percentiles('commit', commits.filter((each) => each.begunUs >= beginUs)
    .map(({ tookUs }) => tookUs));
  percentiles(`commit begun to ${FOLLOWERS} receipts`,
    counted.map(({ begunUs, atUs }) => atUs - begunUs));
  return isWhole();
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
