// The address behind `#` says what is shown: `#/users/ann`, `#/why/order-7?user=bob`. Addresses can
// be sent to somebody; a key is never in one.

import { useEffect, useState } from 'preact/hooks';

export interface Route { page: string; id: string | null; query: URLSearchParams }

export function route(hash: string): Route {
  const [path = '', query = ''] = hash.replace(/^#\/?/, '').split('?', 2);
  const [page = '', id] = path.split('/', 2);
  let named: string | null = null;
  try {
    named = id === undefined || id === '' ? null : decodeURIComponent(id);
  } catch {
    named = id ?? null;
  }
  return { page: page === '' ? 'overview' : page, id: named, query: new URLSearchParams(query) };
}

export function useRoute(): Route {
  const [hash, set] = useState(location.hash);
  useEffect(() => {
    const changed = (): void => set(location.hash);
    addEventListener('hashchange', changed);
    return () => removeEventListener('hashchange', changed);
  }, []);
  return route(hash);
}

export function to(page: string, id?: string, query?: Record<string, string>): string {
  const asked = query === undefined ? '' : `?${new URLSearchParams(query)}`;
  return `#/${page}${id === undefined ? '' : `/${encodeURIComponent(id)}`}${asked}`;
}

export const go = (where: string): void => { location.hash = where; };

/** The same, in place of where one is: "back" doesn't come to it again. */
export const replace = (where: string): void => location.replace(where);
