// A client's socket, cut into messages. Bytes in, values out, no I/O: the checker's own reading of
// RFC 9112, of RFC 6455 and of the HTML standard's event streams, so that it shares no error with
// the edge's.

import { parseJson } from '../../lib/client.mjs';

const NOTHING = Buffer.alloc(0);

/** A response's head, then its body in pieces: chunked, by length, or until the end. */
export class HttpReader {
  head = null;
  #rest = NOTHING;
  #left = 0;
  #chunked = false;
  #inChunk = false;

  /** Gives `[{head} | {body} | {end: true}]`; the next response of the connection follows. */
  feed(bytes) {
    this.#rest = this.#rest.length === 0 ? bytes : Buffer.concat([this.#rest, bytes]);
    const found = [];
    for (;;) {
      const value = this.head === null ? this.#readHead() : this.#readBody();
      if (value === null) return found;
      found.push(value);
    }
  }

  /** What was not read as HTTP: a WebSocket's first bytes. */
  takeRest() {
    const rest = this.#rest;
    this.#rest = NOTHING;
    return rest;
  }

  #readHead() {
    const end = this.#rest.indexOf('\r\n\r\n');
    if (end < 0) return null;
    const [line, ...fields] = this.#rest.subarray(0, end).toString('latin1').split('\r\n');
    const headers = Object.fromEntries(fields.map((field) => {
      const colon = field.indexOf(':');
      return [field.slice(0, colon).toLowerCase(), field.slice(colon + 1).trim()];
    }));
    this.#rest = this.#rest.subarray(end + 4);
    const status = Number(line.split(' ')[1]);
    this.head = { status, headers };
    this.#chunked = headers['transfer-encoding'] === 'chunked';
    this.#inChunk = false;
    this.#left = status === 101 ? Infinity : Number(headers['content-length'] ?? 0);
    return { head: this.head };
  }

  #readBody() {
    if (this.head.status === 101) return null;
    return this.#chunked ? this.#readChunk() : this.#readLength();
  }

  #end() {
    this.head = null;
    return { end: true };
  }

  #readLength() {
    if (this.#left === 0) return this.#end();
    return this.#take();
  }

  #take() {
    if (this.#rest.length === 0) return null;
    const body = this.#rest.subarray(0, this.#left);
    this.#rest = this.#rest.subarray(body.length);
    this.#left -= body.length;
    return { body };
  }

  #readChunk() {
    if (this.#inChunk && this.#left > 0) return this.#take();
    const from = this.#inChunk ? 2 : 0;
    const end = this.#rest.indexOf('\r\n', from);
    if (end < 0) return null;
    const line = this.#rest.subarray(from, end).toString('latin1');
    if (line === '0') {
      if (this.#rest.length < end + 4) return null;
      this.#rest = this.#rest.subarray(end + 4);
      return this.#end();
    }
    if (!/^[0-9a-f]{1,16}$/i.test(line)) throw new Error(`no chunk: ${JSON.stringify(line)}`);
    this.#rest = this.#rest.subarray(end + 2);
    this.#left = parseInt(line, 16);
    this.#inChunk = true;
    return this.#take() ?? { body: NOTHING };
  }
}

/** Frames of a server: `{opcode, payload}`; the server neither masks nor fragments (http.md 9). */
export class FrameReader {
  #rest = NOTHING;

  feed(bytes) {
    this.#rest = Buffer.concat([this.#rest, bytes]);
    const found = [];
    for (;;) {
      const frame = this.#next();
      if (frame === null) return found;
      found.push(frame);
    }
  }

  #next() {
    const bytes = this.#rest;
    if (bytes.length < 2) return null;
    let from = 2;
    let length = bytes[1];
    if (length === 126) {
      if (bytes.length < 4) return null;
      length = bytes.readUInt16BE(2);
      from = 4;
    } else if (length === 127) {
      if (bytes.length < 10) return null;
      length = Number(bytes.readBigUInt64BE(2));
      from = 10;
    }
    if (bytes.length < from + length) return null;
    this.#rest = bytes.subarray(from + length);
    return { opcode: bytes[0] & 0x0f, payload: bytes.subarray(from, from + length) };
  }
}

/** A frame as a client writes it, with a mask of zeros. */
export function clientFrame(opcode, payload) {
  const { length } = payload;
  const size = length < 126 ? [length] : [126, length >> 8, length & 255];
  const head = [0x80 | opcode, 0x80 | size[0], ...size.slice(1), 0, 0, 0, 0];
  return Buffer.concat([Buffer.from(head), payload]);
}

class LineReader {
  #rest = NOTHING;

  lines(bytes) {
    this.#rest = Buffer.concat([this.#rest, bytes]);
    const lines = [];
    for (;;) {
      const end = this.#rest.indexOf(0x0a);
      if (end < 0) return lines;
      lines.push(this.#rest.subarray(0, end).toString());
      this.#rest = this.#rest.subarray(end + 1);
    }
  }
}

/** `{cursor}` or one of `{gap, cursor}`, `{end, cursor}` and `{event, cursor}`, or `{garbled}`. */
export function valueOf(text) {
  const value = parseJson(text);
  if (typeof value !== 'object' || value === null) return { garbled: text.slice(0, 200) };
  const { cursor, ...rest } = value;
  if ('gap' in rest) return { gap: rest.gap, cursor };
  if ('end' in rest) return { end: rest.end, cursor };
  const isEvent = 'subject' in rest || 'subjects' in rest || rest.private === true;
  if (isEvent) return { event: rest, cursor };
  if (Object.keys(rest).length === 0) return { cursor, welcome: true };
  return { garbled: text.slice(0, 200) };
}

/** NDJSON: values as above, an empty line is `{welcome: true}`. */
export class NdjsonReader extends LineReader {
  feed(bytes) {
    return this.lines(bytes).map((line) =>
      (line.trim() === '' ? { welcome: true } : valueOf(line)));
  }
}

/** An event stream (HTML standard, 9.2.6): values as above, `{retry}`, `{busy}`. */
export class SseReader extends LineReader {
  #fields = {};

  feed(bytes) {
    return this.lines(bytes).flatMap((line) => this.#line(line));
  }

  #line(line) {
    if (line === ': welcome') return [{ welcome: true }];
    if (line === ': busy') return [{ busy: true }];
    if (line.startsWith(':')) return [];
    if (line === '') return this.#dispatch();
    const match = /^(id|event|data|retry): ?(.*)$/s.exec(line);
    if (!match) return [{ garbled: line.slice(0, 200) }];
    this.#fields[match[1]] = match[2];
    return [];
  }

  #dispatch() {
    const { id: cursor, event = 'message', data, retry } = this.#fields;
    this.#fields = {};
    const found = retry === undefined ? [] : [{ retry: Number(retry) }];
    if (data === undefined) return cursor === undefined ? found : [...found, { cursor }];
    const value = valueOf(data);
    const kind = value.gap ? 'gap' : value.end ? 'end' : 'message';
    const isRight = event === kind && value.cursor === undefined;
    return [...found, isRight ? { ...value, cursor } : { garbled: `${event} ${data}` }];
  }
}
