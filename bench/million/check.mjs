// Judges whether a machine can hold N connections: facts in, sentences out.
//
// A finding is `{must, says, tune}`. `must`: the run would fail there; otherwise figures would only
// be worse. `tune`: bench/tune.sh can change it.

import { fixed, whole } from '../lib/words.mjs';

/** Of a descriptor table, what connections may take: SO_REUSEPORT doesn't spread them evenly. */
const TABLE_SHARE = 0.9;
/** The edge's own limit. */
export const WORKERS_MAX = 1000;
/** Connections from one source address; edge/halley-load/src/local.rs has the reason. */
export const SOURCE_CONNECTIONS_MAX = 12_000;
/** The kernel's search takes ports of one parity first. */
const PORTS_MIN = 2 * SOURCE_CONNECTIONS_MAX;
/** Descriptors besides connections: files of the store, what else runs. */
const FILES_SPARE = 100_000;
/** Connections that arrive while a worker is at something else. */
const BACKLOG_MIN = 4_096;
/** A small event on its way through one socket, with the kernel's bookkeeping. */
const PACKET_BYTES = 1_024;
const PAGE_BYTES = 4_096;
const HALT_POLL_NS = 200_000;
/** Threads that aren't workers, of all programs. */
const THREADS_SPARE = 1_000;
/** A user with 15 follows in the brain, the import's heaps included (bench/results/). */
const BRAIN_BYTES_PER_USER = 900;
/** One thread of the clients: histograms, buffers, stack. */
const CLIENT_THREAD_BYTES = 600_000;
/** Two ends of an idle connection. A few may seem to cost less: slabs have room to spare. */
export const KERNEL_BYTES_MIN = 7_000;
const CLIENTS_PER_THREAD = 18_000;

/** Workers for N connections when one descriptor table has so many places. */
export function workersFor(connections, { cores, descriptors }) {
  const each = Math.max(1, Math.floor(descriptors * TABLE_SHARE));
  return Math.min(WORKERS_MAX, Math.max(cores, Math.ceil(connections / each)));
}

const finding = (must, tune, says) => ({ must, tune, says });

export function* findings(connections, workers, facts) {
  const { sysctls } = facts;
  const sockets = 2 * connections; // both ends are here
  const n = whole(connections);
  const per = Math.ceil(connections / workers);
  if (per > facts.descriptors * TABLE_SHARE) {
    yield finding(true, false, `${whole(workers)} workers with ${whole(facts.descriptors)} `
      + `descriptors each can't hold ${n} connections: raise the limit of open files of this shell `
      + '(ulimit -Hn; "nofile" in /etc/security/limits.conf, or LimitNOFILE= of its service).');
  }
  const files = sysctls['fs.file-max'][0];
  if (files < sockets + FILES_SPARE) {
    yield finding(true, true, `fs.file-max is ${whole(files)}, but ${n} connections are `
      + `${whole(sockets)} open files, as both ends are on this machine.`);
  }
  const [first, last] = facts.ports;
  if (last - first + 1 < PORTS_MIN) {
    yield finding(true, true, `net.ipv4.ip_local_port_range has ${whole(last - first + 1)} ports; `
      + `the clients take ${whole(SOURCE_CONNECTIONS_MAX)} of each source address 127.0.0.x, and `
      + `Linux looks among every other one first, so ${whole(PORTS_MIN)} are needed.`);
  }
  const threads = 4 * workers + THREADS_SPARE;
  if (facts.threads_max < threads) {
    yield finding(true, false, `kernel.threads-max is ${whole(facts.threads_max)}; edge, clients `
      + `and floor need ${whole(threads)}.`);
  }
  if (facts.conntrack_tracks && facts.conntrack_max < connections + FILES_SPARE) {
    yield finding(true, true, `nf_conntrack keeps an entry for each loopback connection and has `
      + `room for ${whole(facts.conntrack_max)}: raise net.netfilter.nf_conntrack_max, or exempt `
      + 'loopback ("iif lo notrack" in an nftables raw chain), which also saves its memory.');
  }
  if (sysctls['vm.overcommit_memory'][0] === 2) {
    yield finding(true, true, 'vm.overcommit_memory is 2: Erlang reserves far more address space '
      + 'than it uses and may be refused it; 0 is the default.');
  }
  for (const name of ['net.core.somaxconn', 'net.ipv4.tcp_max_syn_backlog']) {
    const [have] = sysctls[name];
    if (have < BACKLOG_MIN) {
      yield finding(false, true, `${name} is ${whole(have)}: when it overflows, a connect waits a `
        + `second before it is tried again; ${whole(BACKLOG_MIN)} are enough.`);
    }
  }
  const pressure = sysctls['net.ipv4.tcp_mem'][1] * PAGE_BYTES;
  if (pressure < connections * PACKET_BYTES) {
    yield finding(false, true, `net.ipv4.tcp_mem begins to save at ${fixed(pressure / 1e9, 1)} GB; `
      + `an event on its way to all ${n} takes about ${fixed(connections * PACKET_BYTES / 1e9, 1)} `
      + 'GB, after which Linux makes windows small and writes wait.');
  }
  if (facts.halt_poll_ns !== undefined && facts.halt_poll_ns < HALT_POLL_NS) {
    yield finding(false, true, 'This is a virtual machine whose idle processors halt at once, so '
      + 'each wake-up of another thread goes through the hypervisor: '
      + `guest_halt_poll_ns = ${whole(HALT_POLL_NS)} has them look around first.`);
  }
}

/** Bytes that N connections will need by part, from what a few were measured to cost. */
export function needs(connections, { edge, clients, kernel }) {
  const threads = Math.ceil(connections / CLIENTS_PER_THREAD);
  const parts = {
    brain: connections * BRAIN_BYTES_PER_USER,
    edge: connections * edge,
    clients: connections * clients + threads * CLIENT_THREAD_BYTES,
    kernel: connections * kernel,
  };
  const all = Object.values(parts).reduce((sum, bytes) => sum + bytes, 0);
  return { ...parts, all, per_connection: all / connections };
}
