// Long-poll (http.md 11): for where every answer is held until it is whole.
//
// The first poll waits for nothing: it shows that the server is there. The series ends by itself
// after a while, so that a better transport is tried again.

import { now } from '../clock.js';
import { connection, lossOf, request } from '../http.js';
import type { Gap, Listener, Place, Transport } from '../types.js';

const SERIES_MS = 900_000;

interface Answer {
  /** There may be more (11.5); servers from before that can't say. */
  more: boolean;
  gap?: Gap;
}

/** One poll, from the place's cursor on, which it moves. No presence is in it. */
export async function pollOnce(
  place: Place, listener: Listener, signal: AbortSignal, timeout: string,
): Promise<Answer> {
  const response = await request(place, 'poll', { signal }, { timeout, presence: '' });
  if (!response.ok) throw await lossOf(response);
  const { events, gap, end, cursor, more } = await response.json();
  // Any of these may end the connection that the others are for.
  for (const one of [{ gap }, ...events, { cursor, end }]) signal.aborted || listener.message(one);
  place.cursor = cursor;
  return { more: more ?? !!events[0], gap };
}

export const poll: Transport = {
  name: 'poll',
  open: (place, listener) => connection(listener, async (signal) => {
    const end = now() + SERIES_MS;
    for (let timeout = '0'; now() < end && !signal.aborted; timeout = '25') {
      await pollOnce(place, listener, signal, timeout);
    }
    return { code: 'reopen', atOnce: true };
  }),
};
