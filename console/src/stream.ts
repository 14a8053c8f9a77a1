// The server's status as it comes through Halley: the console is a client of its own server. Its
// stream is read by `fetch`, as an EventSource can't send the key as a header.

import { keyHeaders } from './api';

const PATH = '/v1/status/stream';
/** A new stream begins with so many events: they reach back to what was asked for before it. */
const LAST = 5;

/** `gap`: something that was meant for this stream is missing. */
export interface Told { kind: 'event' | 'gap'; cursor: string; data: string }

/** What a line of a stream of server-sent events says. */
function field(line: string): [name: string, value: string] {
  const at = line.indexOf(':');
  if (at < 0) return [line, ''];
  return [line.slice(0, at), line.slice(line[at + 1] === ' ' ? at + 2 : at + 1)];
}

/** Events of a text that is `text/event-stream`. A heartbeat has a cursor and no data. */
export class Reader {
  #rest = '';

  read(text: string): Told[] {
    const blocks = (this.#rest + text).split('\n\n');
    this.#rest = blocks.pop() ?? '';
    return blocks.flatMap((block) => {
      const fields = new Map(block.split('\n').map(field));
      const [cursor, data] = [fields.get('id') ?? '', fields.get('data') ?? ''];
      if (data === '' && cursor === '') return [];
      return [{ kind: fields.get('event') === 'gap' ? 'gap' as const : 'event' as const,
        cursor, data }];
    });
  }
}

/** Reads the stream from a cursor on, or its newest events, until it ends: `told` has each. */
export async function follow(cursor: string | null, signal: AbortSignal,
  told: (one: Told) => void): Promise<void> {
  const headers: Record<string, string> = { ...keyHeaders(), accept: 'text/event-stream' };
  if (cursor !== null) headers['last-event-id'] = cursor;
  const answer = await fetch(`${PATH}?last=${LAST}`, { headers, cache: 'no-store', signal });
  if (!answer.ok || answer.body === null) throw new Error(`the stream answered ${answer.status}`);
  const [reader, decoder] = [new Reader(), new TextDecoder()];
  const chunks = answer.body.getReader();
  for (;;) {
    const { done, value } = await chunks.read();
    if (done) return;
    for (const one of reader.read(decoder.decode(value, { stream: true }))) told(one);
  }
}
