// The client whole: every transport, the best that works here.

import type { Options } from './listening.js';
import { Halley } from './halley.js';
import { ndjson } from './transports/ndjson.js';
import { poll } from './transports/poll.js';
import { sse } from './transports/sse.js';
import { webSocket } from './transports/websocket.js';

export const connect = (url: string, options: Options = {}): Halley =>
  new Halley(url, options, [webSocket, sse, ndjson, poll]);

export type { Options } from './listening.js';
export type { Halley, PublishOptions } from './halley.js';
export { HalleyError, type Event, type Gap, type Item, type State } from './types.js';
