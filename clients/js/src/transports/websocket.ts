// WebSocket (http.md 8, 9, 18). It alone has a way back: operations, and a token in band.
//
// A browser's WebSocket can't set headers, so the token is in its address; and it doesn't say why
// it didn't open, so that any failure before the welcome lets the next transport find out.

import { query } from '../http.js';
import type { Transport } from '../types.js';

export const webSocket: Transport = {
  name: 'websocket',
  isThere: ({ WebSocket }) => WebSocket !== undefined,
  open(place, listener) {
    const { base, token } = place;
    const address = `${base.replace(/^http/, 'ws')}ws?${query(place, token ? { token } : {})}`;
    const socket = new place.WebSocket!(address);
    let isOver = false;
    let isHeard = false;
    socket.onmessage = ({ data }) => {
      if (isOver) return;
      isHeard = true;
      listener.message(JSON.parse(data));
    };
    // An error is followed by a close; listened to, as Node's `ws` throws it otherwise.
    socket.onerror = () => {};
    socket.onclose = ({ reason }) => {
      if (isOver) return;
      isOver = true;
      listener.lost({ code: /^\w+/.exec(reason)?.[0] ?? 'closed', broken: !isHeard });
    };
    return {
      drop() {
        isOver = true;
        socket.close();
      },
      send: (text) => socket.send(text),
    };
  },
};
