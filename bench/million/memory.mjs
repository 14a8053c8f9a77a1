// Memory by part: processes as PSS, and the kernel's share, which no process shows.

import { pssBytes } from '../lib/process.mjs';
import { availableBytes, meminfo, read } from './facts.mjs';

const PAGE_BYTES = 4_096;
/** Slabs that are named in results. */
const SLABS_SHOWN = 12;

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

/** The caches that grew most, in bytes per connection. */
export function slabGrowth(before, after, connections) {
  const grown = Object.entries(after).map(([name, bytes]) => [name, bytes - (before[name] ?? 0)]);
  return Object.fromEntries(grown.sort((a, b) => b[1] - a[1]).slice(0, SLABS_SHOWN)
    .filter(([, bytes]) => bytes > 0).map(([name, bytes]) => [name, bytes / connections]));
}
