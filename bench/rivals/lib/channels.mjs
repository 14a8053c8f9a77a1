// The channel of each user: user n, counted from 1, in channel g(n-1)/16, as `halley-load` has it
// too (`--group-size`). Only full channels are published to, so that what must arrive is known.

import { FOLLOWERS } from '../../lib/crowd.mjs';

export const channels = (connections) => Math.floor(connections / FOLLOWERS);

/** Lines of USER SUBJECT. */
export const follows = (connections) => Array.from({ length: connections },
  (_, n) => `${n + 1} g${Math.floor(n / FOLLOWERS)}\n`).join('');
