// What is asked of the server. A key is sent as a header, never in an address, and is kept in this
// tab alone: sessionStorage ends with it.

const KEY = 'halley-key';
const REQUEST_MS_MAX = 20_000;

export type Scope = 'publish' | 'follow' | 'read' | 'admin';
export interface Rights { open: boolean; scopes: Scope[] }

/** An answer that isn't 2xx, or none at all (`status` 0). */
export class Refused extends Error {
  constructor(readonly status: number, readonly code: string, message: string) {
    super(message);
  }
}

export function keptKey(): string | null {
  return sessionStorage.getItem(KEY);
}

export function keepKey(key: string | null): void {
  if (key === null) sessionStorage.removeItem(KEY);
  else sessionStorage.setItem(KEY, key);
}

/** The header that shows a key, if this tab has one. */
export function keyHeaders(key = keptKey()): Record<string, string> {
  return key === null ? {} : { authorization: `Bearer ${key}` };
}

interface Options { method?: string; body?: unknown; signal?: AbortSignal; key?: string | null }

/** The JSON of an answer. */
export async function ask<T>(path: string, options: Options = {}): Promise<T> {
  const headers = keyHeaders(options.key === undefined ? keptKey() : options.key);
  if (options.body !== undefined) headers['content-type'] = 'application/json';
  const signals = [AbortSignal.timeout(REQUEST_MS_MAX)];
  if (options.signal !== undefined) signals.push(options.signal);
  let answer: Response;
  try {
    answer = await fetch(path, {
      method: options.method ?? 'GET', headers, cache: 'no-store', signal: AbortSignal.any(signals),
      ...(options.body === undefined ? {} : { body: JSON.stringify(options.body) }),
    });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new Refused(0, 'no_answer', 'the server does not answer');
  }
  const json: unknown = await answer.json().catch(() => undefined);
  if (answer.ok) return json as T;
  const told = (json as { error?: { code: string; message: string } } | undefined)?.error;
  throw new Refused(answer.status, told?.code ?? 'unknown',
    told?.message ?? `the server answered ${answer.status}`);
}

/** An id as one segment of a path. `.` and `..` would be taken away by the browser. */
export const segment = (id: string): string =>
  /^\.\.?$/.test(id) ? id.replaceAll('.', '%2E') : encodeURIComponent(id);

export interface Session {
  worker?: number; edge?: number; transport: string; state: string; outbox_bytes?: number;
  outbox_events?: number; outbox_ms?: number; held?: number; dropped?: number; conflated?: number;
  passed?: boolean; began?: string;
}
export interface User {
  user: string; online: boolean; sessions: number; following: number; followers: number;
}
/** `subjects` in place of the subject where it is about several. */
export interface Event {
  id: string; subject?: string; subjects?: string[]; at: number; data: unknown;
}
export interface Past { events: Event[]; gaps: { reason: string }[]; next: string | null }
export interface Trace {
  event: { id: string; subject?: string; subjects?: string[]; users?: number; at: number;
    sessions?: number };
  user: string; followed: boolean; unfollowed_at: number | null; sessions: Session[];
  ended: { at: number; reason: string }[]; answer: 'yes' | 'no' | 'not_known'; verdict: string;
}
export interface Busy { subject: string; events: number; sessions: number }
export interface Top { over_ms: number; missed: number; by_events: Busy[]; by_sessions: Busy[] }
/** `user` is null for a visitor; `unknown` workers didn't say. */
export interface Slow {
  user: string | null; worker: number; edge: number; transport: string; outbox_bytes: number;
  outbox_events: number; outbox_ms: number;
}
export interface Behind { behind: Slow[]; unknown: number }
export interface Ended { user: string; at: number; reason: string; worker: number | null }

const user = (id: string): string => `/v1/users/${segment(id)}`;
const subject = (id: string): string => `/v1/subjects/${segment(id)}`;
const page = (after: string | null, limit: number): string =>
  `?limit=${limit}${after === null ? '' : `&after=${encodeURIComponent(after)}`}`;

export const rights = (key: string | null): Promise<Rights> => ask('/v1/key', { key });
export const userOf = (id: string): Promise<User> => ask(user(id));
export const sessionsOf = (id: string): Promise<{ sessions: Session[]; sessions_total: number }> =>
  ask(`${user(id)}/sessions`);
export const followingOf = (id: string, after: string | null, limit: number):
  Promise<{ following: string[]; next: string | null }> =>
  ask(`${user(id)}/following${page(after, limit)}`);
export const followersOf = (id: string, after: string | null, limit: number):
  Promise<{ followers: string[]; next: string | null }> =>
  ask(`${subject(id)}/followers${page(after, limit)}`);
export const closeSessions = (id: string): Promise<{ closed: number }> =>
  ask(`${user(id)}/sessions`, { method: 'DELETE' });
export const eventsOf = (id: string, before: string | null, limit: number): Promise<Past> =>
  ask(`${subject(id)}/events?limit=${limit}${before === null ? '' : `&before=${before}`}`);
export const traceOf = (event: string, of: string): Promise<Trace> =>
  ask(`/v1/events/${segment(event)}/trace?user=${encodeURIComponent(of)}`);
export const publish = (event: unknown): Promise<{ id: string; sessions: number }> =>
  ask('/v1/events', { method: 'POST', body: event });
export const top = (): Promise<Top> => ask('/v1/top');
export const behind = (): Promise<Behind> => ask('/v1/behind');
export const slow = (): Promise<{ ended: Ended[] }> =>
  ask('/v1/ended?reason=slow_consumer&limit=100');
export const drain = (node: string): Promise<{ sessions: number; drain_ms: number }> =>
  ask('/v1/drain', { method: 'POST', body: { node } });
