// The client whole: every transport, the best that works here.

import { Halley, type Options } from './halley.js';
import { ndjson } from './transports/ndjson.js';
import { poll } from './transports/poll.js';
import { sse } from './transports/sse.js';
import { webSocket } from './transports/websocket.js';

export const connect = (url: string, options: Options = {}): Halley =>
  new Halley(url, options, [webSocket, sse, ndjson, poll]);

export type { Operation, PublishOptions } from './doing.js';
export type { Halley, Options } from './halley.js';
export type { ListenOptions, TokenOption } from './listening.js';
export { HalleyError, type Event, type Gap, type Item, type News, type State } from './types.js';
