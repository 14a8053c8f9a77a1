// The server's status, kept fresh. It comes through Halley itself: a stream of events, one each
// second (`stream.ts`). What the stream doesn't bring is asked for by long-polls, which need no
// event: all there is at the beginning, what lies before an event that doesn't go with what is
// known, and everything while the stream is silent, as a proxy keeps it or no event can be
// published. A page that nobody sees has no stream and asks nothing.

import { useEffect, useState } from 'preact/hooks';
import { ask, Refused } from './api';
import { Columns, point, type Point, type Sample } from './series';
import { follow, type Told } from './stream';

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
/** A sample comes each second. Later than that it is asked for; a hole of as much is no pause. */
const SILENT_MS = 3500;
const HOLE_MS = 1700;
/** A stream that brings no event for so long is opened anew: it may be dead. */
const DEAD_MS = 30_000;
/** What a stream missed for longer than that has been asked for meanwhile. */
const CURSOR_MS = 60_000;

/** What is shown; replaced as a whole, so that views see that it changed. `streams`: whether it
 * comes by itself, and isn't asked for. */
export interface Live {
  link: Link; problem: string | null; status: Status | null; columns: Columns | null;
  samples: Sample[]; points: Point[]; streams: boolean;
}

const NOTHING: Live = { link: 'connecting', problem: null, status: null, columns: null,
  samples: [], points: [], streams: false };

/** Waits, unless it is woken or at its end. */
function pause(ms: number, ...signals: AbortSignal[]): Promise<void> {
  return new Promise((done) => {
    const timer = setTimeout(done, ms);
    for (const signal of signals) {
      signal.addEventListener('abort', () => { clearTimeout(timer); done(); }, { once: true });
    }
  });
}

const retryMs = (failures: number): number =>
  RETRY_MS[Math.min(failures, RETRY_MS.length - 1)] ?? 0;

export class Feed {
  live: Live = NOTHING;
  readonly #views = new Set<(live: Live) => void>();
  #stop: AbortController | null = null;
  /** When the stream brought something new, and where it is. */
  #heardMs = -Infinity;
  #cursor: string | null = null;
  #silent = new AbortController();

  constructor(readonly signedOut: () => void) {
    document.addEventListener('visibilitychange', () => this.#seen());
  }

  start(): void {
    this.#stop ??= new AbortController();
    this.#run(this.#stop.signal);
  }

  end(): void {
    this.#stop?.abort();
    this.#stop = null;
    this.#cursor = null;
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
    if (!document.hidden) this.#run(this.#stop.signal);
  }

  #show(live: Live): void {
    this.live = live;
    for (const view of this.#views) view(live);
  }

  #run(signal: AbortSignal): void {
    this.#isSilent();
    void this.#asks(signal);
    void this.#streams(signal);
  }

  /** What the stream lacks is asked for at once. */
  #isSilent(): void {
    this.#heardMs = -Infinity;
    this.#silent.abort();
    this.#silent = new AbortController();
  }

  async #asks(signal: AbortSignal): Promise<void> {
    let failures = 0;
    while (!signal.aborted) {
      const leftMs = this.#heardMs + SILENT_MS - performance.now();
      if (leftMs > 0) {
        await pause(leftMs, signal, this.#silent.signal);
        continue;
      }
      try {
        const after = this.live.samples.at(-1)?.[0] ?? 0;
        const status = await ask<Status>(`/v1/status?after=${after}`, { signal });
        if (signal.aborted) return;
        failures = 0;
        const streams = performance.now() - this.#heardMs < SILENT_MS;
        this.#show({ ...grown(this.live, status, after), streams });
      } catch (error) {
        if (signal.aborted) return;
        this.#failed(error);
        await pause(retryMs(failures), signal);
        failures += 1;
      }
    }
  }

  #failed(error: unknown): void {
    const status = error instanceof Refused ? error.status : 0;
    if (status === 401) return this.signedOut();
    const problem = error instanceof Error ? error.message : String(error);
    const link = status === 403 ? 'refused' : 'lost';
    this.#show({ ...this.live, link, problem, streams: false });
  }

  /** Keeps a stream. That it fails is told by nobody: then questions are asked, and they tell. */
  async #streams(signal: AbortSignal): Promise<void> {
    let failures = 0;
    let heardMs = -Infinity;
    while (!signal.aborted) {
      const dead = new AbortController();
      const isDead = (): void => dead.abort();
      let timer = setTimeout(isDead, DEAD_MS);
      if (performance.now() - heardMs > CURSOR_MS) this.#cursor = null;
      try {
        await follow(this.#cursor, AbortSignal.any([signal, dead.signal]), (told) => {
          if (signal.aborted || !this.#told(told)) return;
          clearTimeout(timer);
          timer = setTimeout(isDead, DEAD_MS);
          heardMs = performance.now();
          failures = 0;
        });
      } catch {
        // As if it had ended.
      }
      clearTimeout(timer);
      if (signal.aborted) return;
      this.#isSilent();
      await pause(retryMs(failures), signal);
      failures += 1;
    }
  }

  /** Whether it was anything new. */
  #told({ kind, cursor, data }: Told): boolean {
    if (cursor !== '') this.#cursor = cursor;
    if (kind === 'gap') {
      this.#isSilent();
      return false;
    }
    const status = data === '' ? null : (JSON.parse(data) as { data: Status }).data;
    const lastAt = this.live.samples.at(-1)?.[0];
    const firstAt = status?.samples.find(([at]) => lastAt === undefined || (at ?? 0) > lastAt)?.[0];
    if (status === null || firstAt === undefined || lastAt === undefined) return false;
    if (firstAt - lastAt > HOLE_MS || !isAlike(this.live, status)) {
      this.#isSilent();
      return false;
    }
    this.#heardMs = performance.now();
    this.#show({ ...grown(this.live, status, null), streams: true });
    return true;
  }
}

const isAlike = (live: Live, status: Status): boolean =>
  live.columns?.names.join() === status.columns.join();

/** With what was answered when samples behind `after` were asked for, or what came by itself. If
 * the answer has others, the server restarted, or its clock did: what was before doesn't go with
 * what is now. */
function grown(live: Live, status: Status, after: number | null): Live {
  const firstAt = status.samples[0]?.[0];
  const anew = !isAlike(live, status)
    || after !== null && firstAt !== undefined && firstAt <= after;
  const columns = anew || live.columns === null ? new Columns(status.columns) : live.columns;
  const samples = anew ? [] : live.samples.slice(-SAMPLES_MAX);
  const points = anew ? [] : live.points.slice(-SAMPLES_MAX);
  for (const sample of status.samples) {
    const last = samples.at(-1);
    // The stream may have brought it while the question waited.
    if (last !== undefined && (sample[0] ?? 0) <= (last[0] ?? 0)) continue;
    points.push(point(columns, last, sample));
    samples.push(sample);
  }
  return { ...live, link: 'live', problem: null, status, columns, samples, points };
}

export function useLive(feed: Feed): Live {
  const [live, show] = useState(feed.live);
  useEffect(() => {
    show(feed.live);
    return feed.watch(show);
  }, [feed]);
  return live;
}
