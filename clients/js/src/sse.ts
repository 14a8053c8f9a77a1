// The client with server-sent events alone, for pages that count bytes.

import { Listening, type Options } from './listening.js';
import { sse } from './transports/sse.js';

export const connect = (url: string, options: Options = {}): Listening =>
  new Listening(url, options, [sse]);

export type { Listening, Options } from './listening.js';
export { HalleyError, type Event, type Gap, type Item, type State } from './types.js';
