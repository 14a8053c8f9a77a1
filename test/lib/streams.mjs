// Sessions of each transport with one interface: `ready()`, `event()`, `quiet()`, `close()`. An
// event is `{id, subject, at, data}` as in the contract, whatever carried it; a private one has
// `private` in place of the subject.

import WebSocket from 'ws';
import { http } from './client.mjs';
import { isMochiweb } from './mochiweb.mjs';
import { requestOf, tls } from './trust.mjs';
import { Queue, until, within } from './wait.mjs';

const streams = new Set();

/** Closes every stream that a test file left open. */
export function closeStreams() {
  for (const stream of streams) stream.close();
}

class Stream {
  events = new Queue();
  comments = new Queue();
  gaps = new Queue();
  /** What is told of presence (http.md 22.7). */
  presence = new Queue();
  /** Subscriptions that have ended (http.md 21.9). */
  lost = new Queue();
  /** Why the stream ends, if it said so (http.md 14.6). */
  end;
  /** All cursors that came, with an event, a gap, a heartbeat or the welcome. */
  cursors = [];

  constructor() {
    streams.add(this);
    let resolve;
    this.closed = new Promise((done) => { resolve = done; });
    this.markClosed = (why) => {
      this.isClosed = true;
      this.events.end(why);
      this.gaps.end(why);
      this.presence.end(why);
      this.lost.end(why);
      resolve(why);
    };
  }

  /** The last of them. */
  get cursor() {
    return this.cursors.at(-1);
  }

  set cursor(cursor) {
    this.cursors.push(cursor);
  }

  event(what = 'event', ms) {
    return this.events.next(what, ms);
  }

  quiet(what, ms) {
    return this.events.none(what, ms);
  }

  /** Waits for a cursor and gives it: where a client that goes away now goes on. */
  async place() {
    await until('a cursor', () => this.cursor);
    return this.cursor;
  }

  /** The connection was ended by the other side. */
  ended(ms) {
    return within('the stream has ended', this.closed, ms);
  }

  close() {
    streams.delete(this);
    this.drop();
  }
}

class HttpStream extends Stream {
  constructor(url, headers, feed) {
    super();
    this.answered = new Promise((resolve, reject) => {
      const { hostname, port, origin } = new URL(url);
      const options = { hostname, port, path: url.slice(origin.length), headers, agent: false };
      this.outgoing = requestOf(url)(options, (incoming) => {
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

/** `/v1/stream?user=...`, with `cursor` where there is one; `who` is a user or the query itself. */
const target = (path, who, cursor) => `${path}?`
  + (typeof who === 'string' ? `user=${encodeURIComponent(who)}` : `${new URLSearchParams(who)}`)
  + (cursor === undefined ? '' : `&cursor=${encodeURIComponent(cursor)}`);

const isEvent = (value) => 'subject' in value || 'subjects' in value || 'private' in value;

/** Sorts a value of NDJSON or WebSocket (http.md 7.4, 9.6, 10.3) into the stream's queues. */
function take(stream, value) {
  if (value.cursor !== undefined) stream.cursor = value.cursor;
  if ('gap' in value) stream.gaps.push(value.gap);
  else if ('end' in value) stream.end = value.end;
  else if ('presence' in value) stream.presence.push(value.presence);
  else if ('ended' in value) stream.lost.push(value.ended);
  else if (isEvent(value)) stream.events.push(value);
  else stream.comments.push(value);
}

/** Sorts an event of an event stream, as a browser would dispatch it. */
function dispatch(stream, fields) {
  if (fields.id !== undefined) stream.cursor = fields.id;
  if (fields.data === undefined) return;
  if (fields.event === 'gap') stream.gaps.push(JSON.parse(fields.data).gap);
  else if (fields.event === 'presence') stream.presence.push(JSON.parse(fields.data).presence);
  else if (fields.event === 'ended') stream.lost.push(JSON.parse(fields.data).ended);
  else if (fields.event === 'end') stream.end = JSON.parse(fields.data).end;
  else stream.events.push(JSON.parse(fields.data));
}

/** An SSE session (`GET /v1/stream`), ready when its welcome has come. */
export const sse = (halley, user, headers = {}, cursor = undefined) =>
  eventStream(halley.publicUrl + target('/v1/stream', user, cursor), headers);

/** The server's status as a stream, at the API listener. */
export const statusStream = (halley, query = {}, headers = {}) =>
  eventStream(halley.apiUrl + target('/v1/status/stream', query), headers);

async function eventStream(url, headers) {
  let fields = {};
  const stream = new HttpStream(
    url,
    { accept: 'text/event-stream', ...headers },
    byLine((self, line) => {
      if (line.startsWith(':')) self.comments.push(line);
      else if (line === '') {
        dispatch(self, fields);
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
export async function ndjson(halley, user, headers = {}, cursor = undefined) {
  const stream = new HttpStream(
    halley.publicUrl + target('/v1/stream', user, cursor),
    { accept: 'application/x-ndjson', ...headers },
    byLine((self, line) => {
      if (line.trim() !== '') take(self, JSON.parse(line));
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
export async function ws(halley, user, options = {}, cursor = undefined) {
  const stream = new Stream();
  const url = halley.publicUrl.replace('http', 'ws') + target('/v1/ws', user, cursor);
  stream.socket = new WebSocket(url, { perMessageDeflate: false, ...tls, ...options });
  stream.socket.on('message', (data, isBinary) => {
    const value = JSON.parse(data.toString());
    take(stream, isEvent(value) ? { ...value, isBinary } : value);
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

/** The answer to an operation of a WebSocket. */
export async function ask(stream, operation) {
  const ref = `${Math.random()}`;
  stream.socket.send(JSON.stringify({ ...operation, ref }));
  for (;;) {
    const answer = await stream.comments.next(`the answer to ${JSON.stringify(operation)}`);
    if (answer.ref === ref) return answer;
  }
}

/** One poll; gives the answer, with `events`, `gap` and `cursor` of its JSON beside the rest. */
export async function poll(halley, user, { cursor, timeout, agent, headers } = {}) {
  const path = target('/v1/poll', user, cursor)
    + (timeout === undefined ? '' : `&timeout=${timeout}`);
  const answer = await http('GET', halley.publicUrl + path, { agent, headers });
  const { events, gap, cursor: next } = answer.json ?? {};
  return { ...answer, events, gap, cursor: next };
}

/** A poll that goes on by itself, behind the same face as the streams. */
export async function polls(halley, user, _options = {}, cursor = undefined) {
  const stream = new Stream();
  stream.drop = () => stream.markClosed('closed');
  const first = cursor ?? (await poll(halley, user, { timeout: 0 })).cursor;
  stream.cursor = first;
  const run = async () => {
    while (!stream.isClosed) {
      const answer = await poll(halley, user, { cursor: stream.cursor, timeout: 1 });
      if (stream.isClosed) return;
      if (answer.gap) stream.gaps.push(answer.gap);
      for (const event of answer.events) stream.events.push(event);
      stream.cursor = answer.cursor;
    }
  };
  run().catch((error) => stream.markClosed(error.message));
  return stream;
}

/** Every transport that stays open, by name: `live[transport](halley, user, options, cursor)`. */
export const live = isMochiweb ? { sse, ndjson } : { sse, ndjson, ws };

/** Every transport that has cursors, in the same way. */
export const open = { ...live, poll: polls };
