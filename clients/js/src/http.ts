// Requests to the public listener: who asks, what a refusal says, and streams read line by line.
//
// The token goes into a header, where no log of a proxy has it. A stream is read by `fetch`, not by
// EventSource, which hides heartbeats, statuses and `Retry-After`, and can't send a header.

import type { Connection, Listener, Loss, Place } from './types.js';

export type More = Record<string, string | number | null | undefined>;

/** In a list of subjects: of the one behind it the presence is meant. No subject begins with it. */
export const PRESENCE = '\t';
export const isPresence = (one: string) => one[0] === PRESENCE;

export const query = ({ user, cursor, subjects, last }: Place, more?: More) => {
  const presence = `${subjects.filter(isPresence)}`.replaceAll(PRESENCE, '');
  // Who comes back has had the newest; where no subject is left `last` is refused (25.1).
  const newest = !cursor && subjects[0] && last;
  return new URLSearchParams([
    ...Object.entries({ user, cursor, last: newest, presence, ...more }),
    ...subjects.map((subject) => ['subject', !isPresence(subject) && subject])]
    .filter(([, value]) => value) as string[][]);
};

/** Some proxies take no longer one: what it would say is a form then (http.md 28.2). */
const QUERY_MAX = 4_000;

export function request(
  place: Place, path: string, init?: RequestInit, more?: More,
): Promise<Response> {
  const { base, token, fetch } = place;
  const body = query(place, more);
  const isForm = `${body}`.length > QUERY_MAX;
  return fetch(base + path + (isForm ? '' : `?${body}`), {
    cache: 'no-store',
    ...init,
    ...(isForm && { method: 'POST', body }),
    headers: { ...(token && { authorization: `Bearer ${token}` }), ...init?.headers },
  });
}

/** So long an answer is waited for; the server's own limit is `limits.response_ms_max`. */
export const ANSWER_MS = 12_000;

/** Ends what hasn't been answered in time; gives what is called when it has. */
export function limited(end: () => void): () => void {
  const timer = setTimeout(end, ANSWER_MS);
  return () => clearTimeout(timer);
}

/** Why an answer isn't what was asked for. Without Halley's JSON it is somebody else's: `http`. */
export async function lossOf(response: Response): Promise<Loss> {
  const { status, headers } = response;
  const after = headers.get('retry-after');
  const { error } = await response.json().catch(() => ({})) ?? {};
  return {
    code: 'http',
    message: `${status}`,
    ...error,
    status,
    ...(after && { retryAfterMs: +after * 1_000 || 1_000 }),
    broken: !error && status < 500,
  };
}

/** Something that is done with `fetch` until it ends, or is dropped. */
export function connection(
  listener: Listener, run: (signal: AbortSignal) => Promise<Loss>,
): Connection {
  const abort = new AbortController();
  const { signal } = abort;
  run(signal)
    .catch((error): Loss => {
      // No network is a TypeError; whatever else there is, this transport isn't spoken here.
      const broken = !(error instanceof TypeError);
      return error.status ? error
        : { code: broken ? 'http' : 'unreachable', message: `${error}`, broken };
    })
    .then((loss) => {
      if (signal.aborted) return;
      abort.abort();
      listener.lost(loss);
    });
  return { drop: () => abort.abort() };
}

/** `GET stream` as `type`; each of its lines goes to `line`, which gives a loss to end it. */
export const lines = (
  place: Place, type: string, listener: Listener, line: (text: string) => Loss | void,
): Connection => connection(listener, async (signal) => {
  const response = await request(place, 'stream', { signal, headers: { accept: type } });
  if (!response.ok) return lossOf(response);
  if (!response.headers.get('content-type')?.startsWith(type)) {
    return { code: 'http', broken: true };
  }
  const reader = response.body!.getReader();
  const decoder = new TextDecoder();
  let rest = '';
  let hasText = false;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return { code: 'closed', broken: !hasText };
    hasText = true;
    const parts = (rest + decoder.decode(value, { stream: true })).split('\n');
    rest = parts.pop()!;
    for (const part of parts) {
      const loss = line(part);
      if (loss) return loss;
    }
  }
});
