// A network namespace of the run's own, for what Linux sizes once at boot: the hash table of TCP
// connections. A machine has one bucket for so many bytes of memory (262,144 with 24 GB); with two
// million sockets each look-up, one per packet, walks over eight of them, none in a cache. A
// namespace can have a table of its own size (net.ipv4.tcp_child_ehash_entries, Linux 6.1); a
// machine that is to hold as many gets it at boot (thash_entries=).

import { spawn, spawnSync } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { say } from '../lib/say.mjs';
import { whole } from '../lib/words.mjs';

const FOR_CHILDREN = '/proc/sys/net/ipv4/tcp_child_ehash_entries';
const HERE = '/proc/sys/net/ipv4/tcp_ehash_entries';
/** The kernel's own limit. */
const BUCKETS_MAX = 1 << 24;
/** Tells the run that it is inside. (Halley refuses a HALLEY_ that it doesn't know.) */
const INSIDE = 'BENCH_INSIDE';
const PROGRAMS = ['/usr/bin/unshare', '/usr/sbin/ip'];

/** Buckets of the table that is in use; undefined where the kernel doesn't say. */
export const buckets = () =>
  (existsSync(HERE) ? Math.abs(Number(readFileSync(HERE, 'utf8'))) : undefined);

/** A container may forbid it to root as well. */
const isPossible = () => process.getuid?.() === 0
  && [FOR_CHILDREN, ...PROGRAMS].every(existsSync)
  && spawnSync(PROGRAMS[0], ['--net', 'true']).status === 0;

/**
 * Runs this program again inside, with a bucket for each socket of `connections`, and ends with
 * it. Returns where that can't be had or isn't needed: not root, an older kernel, a table that is
 * large enough, or it is inside already.
 */
export async function enterOwnNetwork(connections) {
  const wanted = Math.min(BUCKETS_MAX, 2 ** Math.ceil(Math.log2(2 * connections)));
  if (process.env[INSIDE] || !isPossible() || buckets() >= wanted) return;
  const before = readFileSync(FOR_CHILDREN, 'utf8');
  writeFileSync(FOR_CHILDREN, `${wanted}\n`);
  say(`a network namespace with ${whole(wanted)} buckets for TCP, instead of ${whole(buckets())}`);
  const [unshare] = PROGRAMS;
  const child = spawn(unshare, ['--net', 'sh', '-c', 'ip link set lo up && exec "$@"', 'sh',
    process.execPath, ...process.argv.slice(1)],
  { stdio: 'inherit', env: { ...process.env, [INSIDE]: '1' } });
  // A terminal tells both; what tells this one alone is passed on.
  process.on('SIGINT', () => {});
  process.on('SIGTERM', () => child.kill('SIGTERM'));
  const code = await new Promise((resolve) => {
    child.on('error', (error) => { say(`unshare: ${error.message}`); resolve(1); });
    child.on('exit', (status) => resolve(status ?? 1));
  });
  writeFileSync(FOR_CHILDREN, before);
  process.exit(code);
}
