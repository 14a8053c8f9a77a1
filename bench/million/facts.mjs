// The machine's facts: limits, sysctls, memory, as the kernel shows them. Reads, judges nothing.

import { readFileSync } from 'node:fs';
import { cpus } from 'node:os';
import { createConnection, createServer } from 'node:net';

const HALT_POLL = '/sys/module/haltpoll/parameters/guest_halt_poll_ns';
/** Sysctls that a million connections meet; `result.json` has their values. */
const SYSCTLS = [
  'fs.file-max', 'fs.nr_open', 'net.core.somaxconn', 'net.ipv4.ip_local_port_range',
  'net.ipv4.tcp_max_syn_backlog', 'net.ipv4.tcp_mem', 'net.ipv4.tcp_rmem', 'net.ipv4.tcp_wmem',
  'vm.overcommit_memory',
];

export function read(path) {
  try {
    return readFileSync(path, 'utf8').trim();
  } catch {
    return undefined; // not on this kernel, or not for this user
  }
}

const numbers = (text) => (text ?? '').split(/\s+/).filter(Boolean).map(Number);
const sysctl = (name) => read(`/proc/sys/${name.replaceAll('.', '/')}`);

/** /proc/meminfo in bytes. */
export function meminfo() {
  const lines = readFileSync('/proc/meminfo', 'utf8').matchAll(/^([\w()]+):\s+(\d+) kB$/gm);
  return Object.fromEntries([...lines].map(([, name, kib]) => [name, Number(kib) * 1024]));
}

/** What a control group leaves of the memory; Infinity without one. */
function groupRoom() {
  const rows = (read('/proc/self/cgroup') ?? '').split('\n').map((row) => row.split(':'));
  const rooms = rows.map(([, controllers, path]) => {
    if (controllers === '') {
      const folder = `/sys/fs/cgroup${path}`;
      return Number(read(`${folder}/memory.max`)) - Number(read(`${folder}/memory.current`));
    }
    if (controllers !== 'memory') return NaN;
    const folder = `/sys/fs/cgroup/memory${path}`;
    return Number(read(`${folder}/memory.limit_in_bytes`))
      - Number(read(`${folder}/memory.usage_in_bytes`));
  });
  return Math.min(Infinity, ...rooms.filter(Number.isFinite));
}

/**
 * What programs can still have, of `meminfo()`: free memory and files' pages. MemAvailable takes
 * half of the inodes and dentries for reclaimable, and those of open sockets are not: with 2.7
 * million connections it said 6 GB when nothing was left.
 */
export const roomOf = (info) => Math.min(info.MemAvailable,
  info.MemFree + info['Active(file)'] + info['Inactive(file)']);

/** Bytes that programs can still have. */
export const availableBytes = () => Math.min(roomOf(meminfo()), groupRoom());

/** Whether a loopback connection becomes an entry of nf_conntrack; undefined without the module. */
async function tracksLoopback() {
  const count = () => Number(read('/proc/sys/net/netfilter/nf_conntrack_count'));
  if (read('/proc/sys/net/netfilter/nf_conntrack_max') === undefined) return undefined;
  const server = createServer();
  await new Promise((resolve) => { server.listen(0, '127.0.0.1', resolve); });
  const before = count();
  const socket = createConnection(server.address().port, '127.0.0.1');
  await new Promise((resolve) => { socket.once('connect', resolve); });
  const tracked = count() > before;
  socket.destroy();
  server.close();
  return tracked;
}

export async function facts() {
  const limits = /^Max open files\s+\S+\s+(\S+)/m.exec(read('/proc/self/limits') ?? '')?.[1];
  const haltPoll = read(HALT_POLL);
  return {
    cores: cpus().length,
    root: process.getuid?.() === 0,
    available_bytes: availableBytes(),
    descriptors: limits === 'unlimited' ? Infinity : Number(limits),
    open_files: numbers(sysctl('fs.file-nr'))[0] ?? 0,
    ports: numbers(sysctl('net.ipv4.ip_local_port_range')),
    sysctls: Object.fromEntries(SYSCTLS.map((name) => [name, numbers(sysctl(name))])),
    threads_max: Number(read('/proc/sys/kernel/threads-max') ?? Infinity),
    conntrack_max: Number(read('/proc/sys/net/netfilter/nf_conntrack_max') ?? Infinity),
    conntrack_tracks: await tracksLoopback(),
    halt_poll_ns: haltPoll === undefined ? undefined : Number(haltPoll),
  };
}
