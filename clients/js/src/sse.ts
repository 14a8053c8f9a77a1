// The client with server-sent events alone, for pages that count bytes.

import { Listening, type ListenOptions } from './listening.js';
import { OneWay } from './one-way.js';
import { sse } from './transports/sse.js';
import type { Connection, Place, Transport } from './types.js';

class Listener extends Listening {
  override getToken() {
    return this.newToken!();
  }

  protected override open(transport: Transport, place: Place): Connection {
    return transport.open(place, this.core);
  }
}

export const connect = (url: string, options: ListenOptions = {}): Listening =>
  new Listener(url, options, [sse], OneWay);

export type { Listening, ListenOptions, TokenOption } from './listening.js';
export { HalleyError, type Event, type Gap, type Item, type News, type State } from './types.js';
