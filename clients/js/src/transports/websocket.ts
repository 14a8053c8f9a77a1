// WebSocket (http.md 8, 9, 18). It alone has a way back: operations, and a token in band.
//
// A browser's WebSocket can't set headers, so the token is in its address; and it doesn't say why
// it didn't open, so that any failure before that lets the next transport find out. Some addresses
// it refuses at once, as `ws:` in a page of https.
//
// Where its address would be too long for all subjects, the next transport names them in a form. In
// band they would count from their answers: what was missed about them would never come.

import { connection, query } from '../http.js';
import type { Connection, Transport } from '../types.js';

/** Of addresses servers and proxies take 8 KB. */
export const ADDRESS_MAX = 8_000;

export const webSocket: Transport = {
  name: 'websocket',
  open(place, listener) {
    const made: Connection = connection(listener, (signal) => new Promise((lost) => {
      let broken = true;
      const url = `${place.base.replace(/^http/, 'ws')}ws?${query(place, { token: place.token })}`;
      if (url.length > ADDRESS_MAX) {
        return lost({ code: 'address_too_long', status: 414, broken, atOnce: true, quiet: true });
      }
      const socket = new (place.WebSocket as typeof WebSocket)(url);
      signal.onabort = () => socket.close();
      // Who comes back with a cursor and has missed nothing hears nothing more at first; who has
      // none waits for the welcome, from which it counts what it gets (9.6).
      socket.onopen = () => {
        broken = false;
        if (!signal.aborted) {
          // Only now: before it is open, `send` throws.
          made.send = (text) => socket.send(text);
          if (place.said) socket.send(`{"op":"state","data":${place.said}}`);
          if (place.cursor) listener.message({});
        }
      };
      socket.onmessage = ({ data }) => {
        if (!signal.aborted) listener.message(JSON.parse(data));
      };
      // An error is followed by a close; listened to, as Node's `ws` throws it otherwise.
      socket.onerror = () => {};
      socket.onclose = ({ reason }) =>
        lost({ code: /^\w+/.exec(reason)?.[0] ?? 'closed', broken });
    }));
    return made;
  },
};
