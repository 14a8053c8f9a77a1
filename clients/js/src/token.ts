// How long a token is good, as far as it says so itself. It checks nothing: the server does.

/**
 * Milliseconds until a token just received is over; `Infinity` for one that doesn't say. A client's
 * clock may be wrong: one that is behind is seen by `iat`, and one that is ahead gives no time at
 * all, so that a minute is taken.
 */
export function renewAfter(token: string, now: number): number {
  const { exp, iat = -Infinity } = claims(token);
  if (typeof exp !== 'number') return Infinity;
  const left = Math.min(exp * 1_000 - now, (exp - iat) * 1_000);
  return left > 0 ? left : 60_000;
}

/** Of a JWT; empty for anything else. Texts are UTF-8 read byte by byte: good for comparing. */
export function claims(token: string): { sub?: string; exp?: number; iat?: number } {
  try {
    return JSON.parse(atob(token.split('.')[1]!.replace(/-/g, '+').replace(/_/g, '/'))) ?? {};
  } catch {
    return {};
  }
}
