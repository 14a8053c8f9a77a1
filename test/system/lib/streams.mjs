// Sessions of each transport behind one face: `ready()`, `event()`, `quiet()`, `close()`.
// An event is `{id, subject, at, data}` as in the contract, whatever carried it.

import { request } from 'node:http';
import WebSocket from 'ws';
import { Queue, within } from './wait.mjs';

const open = new Set();

/** Closes every stream that a test file left open. */
export function closeStreams() {
  for (const stream of open) stream.close();
}

class Stream {
  events = new Queue();
  comments = new Queue();

  constructor() {
    open.add(this);
    let resolve;
    this.closed = new Promise((done) => { resolve = done; });
    this.markClosed = (why) => {
      this.isClosed = true;
      this.events.end(why);
      resolve(why);
    };
  }

  event(what = 'event', ms) {
    return this.events.next(what, ms);
  }

  quiet(what, ms) {
    return this.events.none(what, ms);
  }

  /** The connection was ended by the other side. */
  ended(ms) {
    return within('the stream has ended', this.closed, ms);
  }

  close() {
    open.delete(this);
    this.drop();
  }
}

class HttpStream extends Stream {
  constructor(url, headers, feed) {
    super();
    this.answered = new Promise((resolve, reject) => {
      this.outgoing = request(url, { headers, agent: false }, (incoming) => {
        this.status = incoming.statusCode;
        this.headers = incoming.headers;
        incoming.setEncoding('utf8');
        incoming.on('data', (text) => feed(this, text));
        incoming.on('error', () => {});
        incoming.on('close', () => this.markClosed('connection closed'));
        resolve();
      });
      this.outgoing.on('error', (error) => {
        this.markClosed(error.message);
        reject(error);
      });
      this.outgoing.end();
    });
    this.answered.catch(() => {});
  }

  drop() {
    this.outgoing.destroy();
  }
}

function byLine(take) {
  let rest = '';
  return (stream, text) => {
    const lines = (rest + text).split('\n');
    rest = lines.pop();
    for (const line of lines) take(stream, line);
  };
}

/** An SSE session (`GET /v1/stream`), ready when its welcome has come. */
export async function sse(halley, user, headers = {}) {
  let fields = {};
  const stream = new HttpStream(
    `${halley.publicUrl}/v1/stream?user=${encodeURIComponent(user)}`,
    { accept: 'text/event-stream', ...headers },
    byLine((self, line) => {
      if (line.startsWith(':')) self.comments.push(line);
      else if (line === '') {
        if (fields.data !== undefined) self.events.push(JSON.parse(fields.data));
        fields = {};
      } else {
        const [, name, value] = /^([a-z]+): ?(.*)$/s.exec(line);
        fields[name] = value;
        self[`last_${name}`] = value;
      }
    }),
  );
  await within('an answer to the stream request', stream.answered);
  if (stream.status === 200) await stream.comments.next('the welcome');
  return stream;
}

/** An NDJSON session; the line that opens it, if any, is in `comments`. */
export async function ndjson(halley, user) {
  const stream = new HttpStream(
    `${halley.publicUrl}/v1/stream?user=${encodeURIComponent(user)}`,
    { accept: 'application/x-ndjson' },
    byLine((self, line) => {
      if (line.trim() === '') return;
      const value = JSON.parse(line);
      if ('subject' in value) self.events.push(value);
      else self.comments.push(value);
    }),
  );
  await within('an answer to the stream request', stream.answered);
  return stream;
}

/** A session of the article's endpoint; `chunks` are what arrived, the welcome first. */
export async function article(halley, user) {
  const stream = new HttpStream(
    `${halley.publicUrl}/test/${encodeURIComponent(user)}`, {},
    (self, text) => self.events.push(text),
  );
  await within('an answer to the stream request', stream.answered);
  return stream;
}

/** A WebSocket session by the `ws` library. */
export async function ws(halley, user, options = {}) {
  const stream = new Stream();
  const url = `${halley.publicUrl.replace('http', 'ws')}/v1/ws?user=${encodeURIComponent(user)}`;
  stream.socket = new WebSocket(url, { perMessageDeflate: false, ...options });
  stream.socket.on('message', (data, isBinary) => {
    const value = JSON.parse(data.toString());
    if ('subject' in value) stream.events.push({ ...value, isBinary });
    else stream.comments.push(value);
  });
  stream.socket.on('close', (code, reason) => {
    stream.markClosed({ code, reason: reason.toString() });
  });
  stream.drop = () => stream.socket.terminate();
  await within('the WebSocket is open', new Promise((resolve, reject) => {
    stream.socket.once('open', resolve);
    stream.socket.once('error', reject);
  }));
  stream.socket.on('error', () => {});
  return stream;
}
