// Memory by part: processes as PSS, and the kernel's share, which no process shows.

import { pssBytes } from '../lib/process.mjs';
import { availableBytes, meminfo, read } from './facts.mjs';

const PAGE_BYTES = 4_096;
/** Slab caches that a socket, its file and its place in an epoll are made from. */
const SOCKET_SLABS = [
  'TCP', 'sock_inode_cache', 'filp', 'dentry', 'eventpoll_epi', 'eventpoll_pwq', 'lsm_file_cache',
  'lsm_inode_cache', 'skbuff_head_cache', 'skbuff_small_head', 'skbuff_fclone_cache',
];

/** A process that is gone has no memory. */
export function pssOf(pids) {
  return pids.reduce((sum, pid) => {
    try {
      return sum + pssBytes(pid);
    } catch {
      return sum;
    }
  }, 0);
}

/**
 * What the kernel has for itself. `all` is memory that is neither free, nor page cache, nor any
 * process's: slab, page tables, stacks, descriptor tables, pages of packets. The others are parts
 * of it and overlap: `tcp` is what Linux accounts to packets in sockets, some of it slab.
 */
export function kernelMemory() {
  const info = meminfo();
  const tcp = /^TCP: .*\bmem (\d+)/m.exec(read('/proc/net/sockstat') ?? '')?.[1] ?? 0;
  const notMine = info.MemFree + info.Buffers + info.Cached + info.AnonPages;
  return {
    all: info.MemTotal - notMine,
    slab: info.Slab,
    page_tables: info.PageTables + (info.SecPageTables ?? 0),
    stacks: info.KernelStack,
    tcp: Number(tcp) * PAGE_BYTES,
    available: availableBytes(),
  };
}

/** Bytes of each slab cache; empty for whoever may not read that. */
export function slabs() {
  const rows = (read('/proc/slabinfo') ?? '').split('\n').slice(2).map((row) => row.split(/\s+/));
  return Object.fromEntries(rows.filter((columns) => columns.length > 15).map((columns) => {
    const [pagesPerSlab, all] = [Number(columns[5]), Number(columns[14])];
    return [columns[0], all * pagesPerSlab * PAGE_BYTES];
  }));
}

/** By how much each cache of sockets grew, in bytes per connection, the most first. */
export function slabGrowth(before, after, connections) {
  const grown = SOCKET_SLABS.filter((name) => after[name] > (before[name] ?? 0))
    .map((name) => [name, (after[name] - (before[name] ?? 0)) / connections]);
  return Object.fromEntries(grown.sort((a, b) => b[1] - a[1]));
}
