// The server's status, kept fresh: each answer brings the newest sample, and the next question
// waits at the server for the one after. A page that nobody sees asks nothing.

import { useEffect, useState } from 'preact/hooks';
import { ask, Refused } from './api';
import { Columns, point, type Point, type Sample } from './series';

export interface Worker {
  edge: number; worker: number; since: number; behind: boolean; queue_bytes: number;
  connections: number | null; sessions: number | null; waiting: number | null;
  held_sessions: number | null; outbox_bytes: number | null; delivered_total: number | null;
  slow_consumers_total: number | null; memory_available_bytes: number | null;
}
export interface Status {
  node: string; version: string | null; uptime_s: number;
  state: 'ready' | 'not_ready' | 'draining'; why: string | null; sessions: number;
  drain_ms: number; auth_mode: 'none' | 'jwt'; public_port: number; columns: string[];
  samples: Sample[]; erlang_bytes: Record<string, number>; workers: Worker[]; since: number;
  counted: Record<string, [total: number, lately: number]>;
}
export type Link = 'connecting' | 'live' | 'lost' | 'refused';

const SAMPLES_MAX = 600;
const RETRY_MS = [500, 1000, 2000, 4000, 8000];

/** What is shown; replaced as a whole, so that views see that it changed. */
export interface Live {
  link: Link; problem: string | null; status: Status | null; columns: Columns | null;
  samples: Sample[]; points: Point[];
}

const NOTHING: Live = { link: 'connecting', problem: null, status: null, columns: null,
  samples: [], points: [] };

export class Feed {
  live: Live = NOTHING;
  readonly #views = new Set<(live: Live) => void>();
  #stop: AbortController | null = null;
  #failures = 0;

  constructor(readonly signedOut: () => void) {
    document.addEventListener('visibilitychange', () => this.#seen());
  }

  start(): void {
    this.#stop ??= new AbortController();
    void this.#run(this.#stop.signal);
  }

  end(): void {
    this.#stop?.abort();
    this.#stop = null;
    this.#show(NOTHING);
  }

  watch(view: (live: Live) => void): () => void {
    this.#views.add(view);
    return () => this.#views.delete(view);
  }

  #seen(): void {
    if (this.#stop === null) return;
    this.#stop.abort();
    this.#stop = new AbortController();
    if (!document.hidden) void this.#run(this.#stop.signal);
  }

  #show(live: Live): void {
    this.live = live;
    for (const view of this.#views) view(live);
  }

  async #run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      try {
        const after = this.live.samples.at(-1)?.[0] ?? 0;
        const status = await ask<Status>(`/v1/status?after=${after}`, { signal });
        if (signal.aborted) return;
        this.#failures = 0;
        this.#show(grown(this.live, status));
      } catch (error) {
        if (signal.aborted) return;
        await this.#failed(error, signal);
      }
    }
  }

  async #failed(error: unknown, signal: AbortSignal): Promise<void> {
    const status = error instanceof Refused ? error.status : 0;
    if (status === 401) return this.signedOut();
    const problem = error instanceof Error ? error.message : String(error);
    this.#show({ ...this.live, link: status === 403 ? 'refused' : 'lost', problem });
    const ms = RETRY_MS[Math.min(this.#failures, RETRY_MS.length - 1)];
    this.#failures += 1;
    await new Promise<void>((done) => {
      const timer = setTimeout(done, ms);
      signal.addEventListener('abort', () => { clearTimeout(timer); done(); }, { once: true });
    });
  }
}

/** The server restarted, or its clock did: what was before doesn't go with what is now. */
function isAnother(live: Live, status: Status): boolean {
  const [last, first] = [live.samples.at(-1)?.[0], status.samples[0]?.[0]];
  return live.columns?.names.join() !== status.columns.join()
    || last !== undefined && first !== undefined && first <= last;
}

function grown(live: Live, status: Status): Live {
  const anew = isAnother(live, status);
  const columns = anew || live.columns === null ? new Columns(status.columns) : live.columns;
  const samples = anew ? [] : live.samples.slice(-SAMPLES_MAX);
  const points = anew ? [] : live.points.slice(-SAMPLES_MAX);
  for (const sample of status.samples) {
    points.push(point(columns, samples.at(-1), sample));
    samples.push(sample);
  }
  return { link: 'live', problem: null, status, columns, samples, points };
}

export function useLive(feed: Feed): Live {
  const [live, show] = useState(feed.live);
  useEffect(() => {
    show(feed.live);
    return feed.watch(show);
  }, [feed]);
  return live;
}
