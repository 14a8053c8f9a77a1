// A connection of each transport. All say what they receive in the same words, to `listener`:
//
//   open()                 the welcome; what is published from now on is owed
//   event(json, cursor)    gap(gap, cursor)    cursor(cursor)    garbled(text)
//   asking()               an operation is about to be written; gives the tick
//   answer({subject, last, asked, events, gaps, kept})    to a subscription by an operation
//   refused(status, code)  an answer that is no stream: 503, or `: busy`
//   closed(by, why)        once, at the end; nothing comes after it
//
// On sockets of their own, not on a library's: a client that dies in the middle of a frame is made
// by cutting the bytes where the fault says so.

import { randomBytes } from 'node:crypto';
import { connect } from 'node:net';
import { parseJson } from '../../lib/client.mjs';
import {
  FrameReader, HttpReader, NdjsonReader, SseReader, clientFrame, valueOf,
} from './bytes.mjs';

const OPEN_MS_MAX = 15_000;
const POLL_S = 5;
const POLL_SLACK_MS = 15_000;

class Connection {
  #socket;
  #timer;
  #done = false;
  #cut = null;

  constructor(port, listener) {
    this.listener = listener;
    this.#socket = connect({ port, host: '127.0.0.1', noDelay: true });
    this.#socket.on('data', (bytes) => this.#receive(bytes));
    this.#socket.on('error', (error) => this.finish('server', error.code ?? error.message));
    this.#socket.on('end', () => this.finish('server', 'end'));
    this.#socket.on('close', () => this.finish('server', 'closed'));
    this.patience(OPEN_MS_MAX, 'no welcome in time');
  }

  /** Gives up unless it is called again, or `settled`, within `ms`. */
  patience(ms, why) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.finish('client', why), ms);
  }

  settled() {
    clearTimeout(this.#timer);
  }

  /** A head that opens nothing; its body, with the error's code, comes along with it. */
  refuse({ status }, found) {
    const body = Buffer.concat(found.flatMap((value) => value.body ?? []));
    this.listener.refused(status, parseJson(body.toString())?.error?.code);
    this.finish('client', `refused with ${status}`);
  }

  send(bytes) {
    if (!this.#done) this.#socket.write(bytes);
  }

  get isDone() {
    return this.#done;
  }

  #receive(bytes) {
    if (this.#done) return;
    const whole = this.#cut === null;
    const part = whole ? bytes : bytes.subarray(0, Math.floor(bytes.length * this.#cut));
    try {
      this.feed(part);
    } catch (error) {
      this.listener.garbled(error.message);
      this.finish('client', 'garbled');
    }
    if (!whole) this.finish('client', 'killed in the middle of a frame');
  }

  /** The client dies when the next bytes come, having read this fraction of them. */
  dieMidFrame(fraction) {
    this.#cut = fraction;
  }

  pause() {
    this.#socket.pause();
  }

  resume() {
    this.#socket.resume();
  }

  finish(by, why) {
    if (this.#done) return;
    this.#done = true;
    clearTimeout(this.#timer);
    if (by === 'client') this.#socket.resetAndDestroy();
    else this.#socket.destroy();
    this.listener.closed(by, why);
  }

  /** One value of a stream, as the readers of bytes.mjs give them. */
  take(value) {
    const { listener } = this;
    if (this.isDone) return;
    if (value.garbled !== undefined) listener.garbled(value.garbled);
    else if (value.event) listener.event(value.event, value.cursor);
    else if (value.gap) listener.gap(value.gap, value.cursor);
    else if (value.end) {
      if (value.cursor) listener.cursor(value.cursor);
      this.finish('server', `end: ${value.end.reason}`);
    } else {
      if (value.welcome) this.welcomed();
      if (value.cursor) listener.cursor(value.cursor);
    }
  }

  #isOpen = false;

  welcomed() {
    if (this.#isOpen) return;
    this.#isOpen = true;
    this.settled();
    this.listener.open();
  }
}

/** The address of a session: of a user, or of a visitor that has none. */
const target = (path, { user, subjects = [], last, token }, cursor) => {
  const query = new URLSearchParams();
  if (user !== undefined) query.append('user', user);
  for (const subject of subjects) query.append('subject', subject);
  if (cursor !== undefined) query.append('cursor', cursor);
  if (last !== undefined) query.append('last', last);
  if (token !== undefined) query.append('token', token);
  return `${path}?${query}`;
};

class HttpStream extends Connection {
  #http = new HttpReader();
  #body;

  constructor(port, listener, how, accept, body) {
    super(port, listener);
    const { cursor, byHeader } = how;
    this.#body = body;
    const header = cursor !== undefined && byHeader ? `Last-Event-ID: ${cursor}\r\n` : '';
    const shown = how.token !== undefined && byHeader
      ? `Authorization: Bearer ${how.token}\r\n` : '';
    const path = target('/v1/stream', shown === '' ? how : { ...how, token: undefined },
      byHeader ? undefined : cursor);
    this.send(`GET ${path} HTTP/1.1\r\nHost: h\r\nAccept: ${accept}\r\n${header}${shown}\r\n`);
  }

  feed(bytes) {
    const found = this.#http.feed(bytes);
    for (const { head, body, end } of found) {
      if (this.isDone) return;
      if (head && head.status !== 200) this.refuse(head, found);
      if (body) for (const value of this.#body.feed(body)) this.#value(value);
      if (end) this.finish('server', 'the last chunk');
    }
  }

  #value(value) {
    if (value.busy) {
      this.listener.refused('busy');
      this.finish('client', 'refused as busy');
    } else {
      this.take(value);
    }
  }
}

/** What a close frame says: its code and its reason. */
const closeText = (payload) => (payload.length < 2 ? 'close'
  : `close ${payload.readUInt16BE(0)} ${payload.toString('utf8', 2)}`);

class WebSocketStream extends Connection {
  #http = new HttpReader();
  #frames = null;
  #hasCursor;
  /** Subjects that it still waits for, by the `ref` of the operation. */
  #asked = new Map();
  /** Whether the session has them only by operations. */
  #byOperations;
  /** The parameters, where they are its first message (http.md 28.3). */
  #first;

  constructor(port, listener, how) {
    super(port, listener);
    const { cursor, byOperations, asking = [] } = how;
    // With a wish for the newest it is one, too.
    this.#hasCursor = cursor !== undefined || how.last !== undefined;
    this.#byOperations = byOperations;
    for (const [n, one] of asking.entries()) this.#asked.set(n, one);
    const said = target('/v1/ws', byOperations ? { ...how, subjects: [] } : how, cursor);
    if (how.byMessage) [, this.#first] = said.split('?');
    const path = how.byMessage ? '/v1/ws?open=message' : said;
    this.send(`GET ${path} HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\n`
      + 'Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n'
      + `Sec-WebSocket-Key: ${randomBytes(16).toString('base64')}\r\n\r\n`);
  }

  feed(bytes) {
    if (this.#frames) return this.#feedFrames(bytes);
    const found = this.#http.feed(bytes);
    for (const { head } of found) {
      if (head?.status === 101) {
        this.#frames = new FrameReader();
        if (this.#first !== undefined) this.send(clientFrame(1, Buffer.from(this.#first)));
        // With a cursor in the address no welcome comes.
        else if (this.#hasCursor) this.welcomed();
        for (const [ref, one] of this.#asked) {
          one.asked = this.listener.asking();
          const operation = { op: 'subscribe', ref, subject: one.subject, last: one.last };
          this.send(clientFrame(1, Buffer.from(JSON.stringify(operation))));
        }
        return this.#feedFrames(this.#http.takeRest());
      }
      if (head) this.refuse(head, found);
    }
    return undefined;
  }

  #feedFrames(bytes) {
    for (const { opcode, payload } of this.#frames.feed(bytes)) {
      if (opcode === 1) this.#text(payload.toString());
      else if (opcode === 8) this.finish('server', closeText(payload));
      else if (opcode === 9) this.send(clientFrame(10, payload));
      else this.listener.garbled(`opcode ${opcode}`);
    }
  }

  /** What it asked for is owed from the last answer on. */
  #text(text) {
    const { ref, ok, error } = parseJson(text) ?? {};
    if (error?.status) {
      this.listener.refused(error.status, error.code);
      this.finish('client', `refused with ${error.status}`);
    } else if (ref === undefined) {
      const value = valueOf(text);
      const waits = this.#byOperations && this.#asked.size > 0;
      this.take(waits ? { ...value, welcome: false } : value);
    } else if (ok?.added === Number(this.#byOperations) && ok.added + ok.already === 1) {
      this.listener.answer({ ...this.#asked.get(ref), ...ok });
      this.#asked.delete(ref);
      if (this.#asked.size === 0) this.welcomed();
    } else {
      this.listener.refused(`subscribe: ${text.slice(0, 80)}`);
      this.finish('client', 'refused');
    }
  }
}

/** One poll after the other on one connection; each is a resume of its own. */
class Poll extends Connection {
  #http = new HttpReader();
  #body = [];
  #how;

  constructor(port, listener, how) {
    super(port, listener);
    this.#how = how;
    if (how.cursor !== undefined) this.welcomed();
    this.#ask(how.cursor);
  }

  #ask(cursor) {
    const timeout = cursor === undefined ? 0 : POLL_S;
    this.patience(POLL_S * 1000 + POLL_SLACK_MS, 'a poll without answer');
    this.send(`GET ${target('/v1/poll', this.#how, cursor)}&timeout=${timeout} HTTP/1.1\r\n`
      + 'Host: h\r\n\r\n');
  }

  feed(bytes) {
    const found = this.#http.feed(bytes);
    for (const { head, body, end } of found) {
      if (this.isDone) return;
      if (head && head.status !== 200) this.refuse(head, found);
      if (body) this.#body.push(body);
      if (end) this.#answer(Buffer.concat(this.#body.splice(0)).toString());
    }
  }

  #answer(text) {
    const { events, gap, cursor, end } = parseJson(text) ?? {};
    if (!Array.isArray(events) || typeof cursor !== 'string') {
      this.listener.garbled(text.slice(0, 200));
      this.finish('client', 'garbled');
      return;
    }
    this.welcomed();
    if (gap) this.listener.gap(gap);
    for (const event of events) this.listener.event(event);
    this.listener.cursor(cursor);
    if (end) this.finish('client', `end: ${end.reason}`);
    if (this.isDone) return;
    this.listener.again();
    this.#ask(cursor);
  }
}

const makers = {
  sse: (port, listener, how) =>
    new HttpStream(port, listener, how, 'text/event-stream', new SseReader()),
  ndjson: (port, listener, how) =>
    new HttpStream(port, listener, how, 'application/x-ndjson', new NdjsonReader()),
  ws: (port, listener, how) => new WebSocketStream(port, listener, how),
  poll: (port, listener, how) => new Poll(port, listener, how),
};

export const TRANSPORTS = Object.keys(makers);

/** Opens one; `how` is `{user?, subjects?, cursor?, last?, token?, byHeader, byMessage,
 *  byOperations, asking?}`. A WebSocket subscribes by operations to `asking`,
 *  `[{subject, last?}]`; with `byOperations` these are all that it has. */
export function openConnection(transport, port, listener, how) {
  return makers[transport](port, listener, how);
}
