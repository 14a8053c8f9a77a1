// From samples to what charts show: rates from counters, and percentiles of how late events were
// written. Pure.

/** The time in milliseconds, then a value for each column. */
export type Sample = number[];

/** What charts show of one second; null where it isn't known. */
export interface Point {
  at: number; connections: number; sessions: number; users: number;
  events: number | null; deliveries: number | null; requests: number | null;
  p50: number | null; p99: number | null; brain: number; edge: number; outbox: number;
  queue: number; slow: number | null;
}

/** The columns of deliveries by age: below how many milliseconds; the last has no bound. */
const STEPS = [1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000];
const LATER = 'written_later_total';

/** A sample that comes this late tells of a pause; a rate over it would hide that. */
const PAUSE_MS = 10_000;

export class Columns {
  readonly #at: Map<string, number>;

  constructor(readonly names: string[]) {
    this.#at = new Map(names.map((name, index) => [name, index + 1]));
  }

  of(sample: Sample, name: string): number {
    return sample[this.#at.get(name) ?? -1] ?? 0;
  }

  /** How many deliveries were of each age. */
  ages(sample: Sample): number[] {
    return [...STEPS.map((ms) => this.of(sample, `written_in_${ms}_ms_total`)),
      this.of(sample, LATER)];
  }
}

/** The age that a share of them was below; `Infinity` beyond the last step, null if none. */
export function percentile(ages: number[], share: number): number | null {
  const all = ages.reduce((sum, n) => sum + n, 0);
  if (all <= 0) return null;
  let seen = 0;
  for (const [index, n] of ages.entries()) {
    seen += n;
    if (seen >= share * all) return STEPS[index] ?? Infinity;
  }
  return Infinity;
}

/** A counter that went back began anew: its server was restarted. */
function perSecond(before: number, now: number, ms: number): number | null {
  return now < before || ms > PAUSE_MS ? null : (now - before) * 1000 / ms;
}

export function point(columns: Columns, before: Sample | undefined, now: Sample): Point {
  const get = (name: string): number => columns.of(now, name);
  const ms = before === undefined ? Infinity : (now[0] ?? 0) - (before[0] ?? 0);
  const of = (name: string): number | null =>
    before === undefined ? null : perSecond(columns.of(before, name), get(name), ms);
  const last = before === undefined ? [] : columns.ages(before);
  const ages = columns.ages(now).map((n, index) => Math.max(0, n - (last[index] ?? n)));
  return {
    at: now[0] ?? 0, connections: get('connections'), sessions: get('sessions'),
    users: get('users'), events: of('events'), deliveries: of('deliveries'),
    requests: of('requests'), p50: percentile(ages, 0.5), p99: percentile(ages, 0.99),
    brain: get('brain_rss_bytes'), edge: get('edge_rss_bytes'), outbox: get('outbox_bytes'),
    queue: get('link_queue_bytes'), slow: of('slow_consumers'),
  };
}

/** Percentiles over several samples. */
export function agesOver(columns: Columns, samples: Sample[]): number[] {
  const [first, last] = [samples[0], samples.at(-1)];
  if (first === undefined || last === undefined) return [];
  const before = columns.ages(first);
  return columns.ages(last).map((n, index) => Math.max(0, n - (before[index] ?? 0)));
}

/** `< 3 ms`: ages are known by their steps. */
export function below(ms: number | null): string {
  if (ms === null) return '–';
  if (ms === Infinity) return '> 1 s';
  return ms === 1000 ? '< 1 s' : `< ${ms} ms`;
}
