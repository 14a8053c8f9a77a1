// Numbers, times and sizes as people read them.

const SHORT = new Intl.NumberFormat('en', { notation: 'compact', maximumFractionDigits: 1 });
const WHOLE = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });
const TENTHS = new Intl.NumberFormat('en', { maximumFractionDigits: 1 });
const CLOCK = new Intl.DateTimeFormat('en-GB', { timeStyle: 'medium' });
const DAY = new Intl.DateTimeFormat('en-GB', { dateStyle: 'medium', timeStyle: 'medium' });

const KIB = 1024;
const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
const MINUTE_S = 60;
const HOUR_S = 3600;
const DAY_S = 86_400;
const NOW_MS = 2000;
const COMPACT_FROM = 100_000;

/** Whole below 100,000, then compact: 64,012, 1.2M. */
export function count(n: number | null | undefined): string {
  if (n === null || n === undefined || Number.isNaN(n)) return '–';
  return Math.abs(n) < COMPACT_FROM ? WHOLE.format(n) : SHORT.format(n);
}

export const exact = (n: number): string => WHOLE.format(n);

/** A rate: tenths below ten. */
export function rate(n: number | null | undefined): string {
  if (n === null || n === undefined || Number.isNaN(n)) return '–';
  return n < 10 ? TENTHS.format(n) : count(Math.round(n));
}

export function bytes(n: number | null | undefined): string {
  if (n === null || n === undefined || Number.isNaN(n)) return '–';
  let [value, unit] = [n, 0];
  while (value >= KIB && unit < UNITS.length - 1) [value, unit] = [value / KIB, unit + 1];
  return `${value < 10 && unit > 0 ? TENTHS.format(value) : WHOLE.format(value)} ${UNITS[unit]}`;
}

/** `3 d 4 h`, `12 min`, `8 s`: the two largest parts. */
export function span(seconds: number): string {
  const whole = Math.max(0, Math.round(seconds));
  const [days, hours] = [Math.floor(whole / DAY_S), Math.floor((whole % DAY_S) / HOUR_S)];
  const [minutes, rest] = [Math.floor((whole % HOUR_S) / MINUTE_S), whole % MINUTE_S];
  if (days > 0) return `${days} d ${hours} h`;
  if (hours > 0) return `${hours} h ${minutes} min`;
  if (minutes > 0) return minutes < 10 ? `${minutes} min ${rest} s` : `${minutes} min`;
  return `${rest} s`;
}

export const clock = (ms: number): string => CLOCK.format(ms);
export const day = (ms: number): string => DAY.format(ms);

export function ago(ms: number, now = Date.now()): string {
  return now - ms < NOW_MS ? 'just now' : `${span((now - ms) / 1000)} ago`;
}

/** `1 session`, `3 sessions`. */
export function of(n: number, noun: string): string {
  return `${count(n)} ${noun}${n === 1 ? '' : 's'}`;
}
