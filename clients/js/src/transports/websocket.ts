// WebSocket (http.md 8, 9, 18). It alone has a way back: operations, and a token in band.
//
// A browser's WebSocket can't set headers, so the token is in its address; and it doesn't say why
// it didn't open, so that any failure before that lets the next transport find out. Some addresses
// it refuses at once, as `ws:` in a page of https.
//
// Where its address would be too long for all subjects, they are in its first message (28.3). An
// address is a round trip faster.

import { connection, query } from '../http.js';
import type { Connection, Transport } from '../types.js';

/** Of addresses servers and proxies take 8 KB. */
const ADDRESS_MAX = 8_000;

export const webSocket: Transport = {
  name: 'websocket',
  open(place, listener) {
    const made: Connection = connection(listener, (signal) => new Promise((lost) => {
      let broken = true;
      const wanted = `${query(place, { token: place.token })}`;
      const isLong = wanted.length > ADDRESS_MAX;
      const socket = new (place.WebSocket as typeof WebSocket)(
        `${place.base.replace(/^http/, 'ws')}ws?${isLong ? 'open=message' : wanted}`);
      signal.onabort = () => socket.close();
      // Who comes back with a cursor and has missed nothing hears nothing more at first; who has
      // none waits for the welcome, from which it counts what it gets (9.6).
      socket.onopen = () => {
        broken = false;
        if (!signal.aborted) {
          // Only now: before it is open, `send` throws.
          made.send = (text) => socket.send(text);
          if (isLong) made.send(wanted);
          if (place.said) made.send(`{"op":"state","data":${place.said}}`);
          if (place.cursor && !isLong) listener.message({});
        }
      };
      socket.onmessage = ({ data }) => {
        if (signal.aborted) return;
        const message = JSON.parse(data);
        const { status, retry_after_s: after } = message.error ?? {};
        // It alone has a status: the first message is refused.
        if (status) lost({ ...message.error, retryAfterMs: after && after * 1_000 });
        else listener.message(message);
      };
      // An error is followed by a close; listened to, as Node's `ws` throws it otherwise.
      socket.onerror = () => {};
      socket.onclose = ({ reason }) =>
        lost({ code: /^\w+/.exec(reason)?.[0] ?? 'closed', broken });
    }));
    return made;
  },
};
