// NDJSON (http.md 7.4): a line is what a message of the WebSocket is; an empty one is a heartbeat.

import { lines } from '../http.js';
import type { Transport } from '../types.js';

export const ndjson: Transport = {
  name: 'ndjson',
  open: (place, listener) => lines(place, 'application/x-ndjson', listener,
    (line) => listener.message(JSON.parse(line.trim() || '{}'))),
};
