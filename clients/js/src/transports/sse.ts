// Server-sent events (http.md 7.3), as far as Halley writes them.

import { lines } from '../http.js';
import type { Message, Transport } from '../types.js';

export const sse: Transport = {
  name: 'sse',
  open(place, listener) {
    let message: Message = {};
    let isBusy = false;
    return lines(place, 'text/event-stream', listener, (line) => {
      // 13.2: a whole answer, for those to whom an error would be the end.
      if (line === ': busy') isBusy = true;
      const [, name, value] = /^(\w*):? ?([^]*)/.exec(line)!;
      if (name === 'retry' && isBusy) return { code: 'busy', retryAfterMs: +value! };
      else if (name === 'retry') listener.retry(+value!);
      else if (name === 'id') message.cursor = value!;
      // Its type is in the data too: `gap` and `end` are members of it.
      else if (name === 'data') Object.assign(message, JSON.parse(value!));
      else if (line === '') {
        if (!isBusy) listener.message(message);
        message = {};
      }
    });
  },
};
