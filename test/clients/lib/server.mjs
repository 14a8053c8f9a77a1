// A server that says what a case tells it to, right or wrong. It has no mind of its own: each
// stream, poll or request of a client is a *visit*, which the case takes by `visit()` and answers.
//
// Invariants: a visit is answered by the case alone, but for what belongs to no story: publishes
// and follows go to `answer` (a function of the case), and a token in band is confirmed.

import { createServer } from 'node:http';
import { once } from 'node:events';
import * as ws from './websocket.mjs';

const VISIT_MS_MAX = 45_000;
const HEAD = {
  sse: { 'Content-Type': 'text/event-stream', 'Cache-Control': 'no-cache' },
  ndjson: { 'Content-Type': 'application/x-ndjson' },
};

/** One stream or poll that a client asks for. */
class Visit {
  constructor(transport, request, socket, response, form = '') {
    const { method, url: address } = request;
    Object.assign(this, { transport, socket, response, method, address, at: Date.now(), said: [] });
    // http.md 28.2: a form is a part of the query.
    const url = new URL(`${address}${address.includes('?') ? '&' : '?'}${form}`, 'http://halley');
    this.cursor = url.searchParams.get('cursor') ?? request.headers['last-event-id'] ?? null;
    this.timeout = url.searchParams.get('timeout');
    this.subjects = [...url.searchParams.getAll('subject'),
      ...url.searchParams.getAll('subjects').flatMap((list) => list.split(','))];
    this.presence = url.searchParams.get('presence')?.split(',') ?? [];
    const bearer = /^Bearer (.*)$/.exec(request.headers.authorization ?? '');
    this.token = bearer?.[1] ?? url.searchParams.get('token');
    this.key = request.headers['sec-websocket-key'];
    this.isOver = false;
    socket.on('close', () => { this.isOver = true; });
    response?.on('close', () => { this.isOver = true; });
  }

  /** Halley's own refusal (http.md 5.3). */
  refuse(status, code, retryAfter) {
    const body = JSON.stringify({ error: { code, message: `${code}, says the test` } });
    this.answer(status, body, { 'Content-Type': 'application/json',
      ...(retryAfter === undefined ? {} : { 'Retry-After': retryAfter }) });
  }

  /** Whole and as it is: a proxy's page, or a poll's answer. */
  answer(status, body, headers = {}) {
    if (this.response) {
      this.response.writeHead(status, headers).end(body);
      return;
    }
    const lines = Object.entries({ ...headers, 'Content-Length': Buffer.byteLength(body),
      Connection: 'close' }).map(([name, value]) => `${name}: ${value}\r\n`).join('');
    this.socket.end(`HTTP/1.1 ${status} Refused\r\n${lines}\r\n${body}`);
  }

  /** A poll's answer (http.md 11.1). */
  poll(body) {
    this.answer(200, JSON.stringify({ events: [], ...body }),
      { 'Content-Type': 'application/json' });
  }

  /** The head alone, as a proxy that buffers passes it on. */
  head() {
    if (this.transport === 'websocket') {
      if (!this.isAccepted) this.accept((text) => this.hear(text));
    } else {
      this.response.writeHead(200, HEAD[this.transport]).flushHeaders();
    }
    return this;
  }

  accept(onText) {
    this.isAccepted = true;
    ws.accept(this.socket, this.key);
    ws.read(this.socket, onText);
  }

  welcome(cursor, retryMs = 500) {
    this.head();
    if (this.transport !== 'sse') return this.message({ cursor });
    return this.raw(`: welcome\nretry: ${retryMs}\nid: ${cursor}\n\n`);
  }

  message(message) {
    return this.raw(this.#encode(message));
  }

  event(cursor, event) {
    return this.message({ cursor, ...event });
  }

  /** The first half of an event. */
  half(cursor, event) {
    const whole = this.#encode({ cursor, ...event });
    return this.raw(whole.slice(0, Math.floor(whole.length / 2)));
  }

  heartbeat(cursor) {
    if (this.transport === 'websocket') return this.raw(ws.ping());
    return this.raw(this.transport === 'sse' ? `id: ${cursor}\n\n` : `{"cursor":"${cursor}"}\n`);
  }

  raw(data) {
    if (!this.isOver) (this.response ?? this.socket).write(data);
    return this;
  }

  /** The connection is gone, once what was said has left. */
  async cut() {
    await new Promise((sent) => { setTimeout(sent, 50); });
    this.socket.destroy();
  }

  /** As the server ends it: a WebSocket with that code. */
  end(code = 1001, reason = '') {
    if (this.transport === 'websocket') this.socket.end(ws.close(code, reason));
    else this.response.end();
  }

  #encode(message) {
    if (this.transport === 'websocket') return ws.text(message);
    if (this.transport === 'ndjson') return `${JSON.stringify(message)}\n`;
    const { cursor, ...rest } = message;
    const type = rest.gap ? 'event: gap\n' : rest.end ? 'event: end\n' : '';
    return `${type}${cursor ? `id: ${cursor}\n` : ''}data: ${JSON.stringify(rest)}\n\n`;
  }

  hear(text) {
    const message = JSON.parse(text);
    this.said.push(message);
    if (message.op === 'token') {
      this.message({ ...(message.ref !== undefined && { ref: message.ref }),
        ok: { expires: null } });
    } else {
      this.told?.(message, (answer) => this.message({ ref: message.ref, ...answer }));
    }
  }
}

async function wholeOf(request) {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  return Buffer.concat(chunks).toString();
}

export class Server {
  #http;
  #visits = [];
  #waiting = [];
  #sockets = new Set();
  /** Of an operation `{op, subject, ...}`: `{ok}`, `{error, status, retryAfter}` or null (cut). */
  answer = () => ({ ok: {} });
  /** Every operation, with its time. */
  operations = [];
  visits = [];

  async start() {
    this.#http = createServer((request, response) => this.#request(request, response));
    this.#http.on('upgrade', (request, socket) => {
      socket.on('error', () => {});
      const visit = (form) => {
        const one = new Visit('websocket', request, socket, undefined, form);
        one.told = (message, reply) => this.#message(one, message, reply);
        return one;
      };
      if (!request.url.includes('open=message')) return this.#visit(visit());
      // http.md 28.3: the first message is a form.
      let one;
      const begin = (form) => {
        one = Object.assign(visit(form), { isAccepted: true });
        this.#visit(one);
      };
      visit().accept((text) => (one ? one.hear(text) : begin(text)));
    });
    this.#http.on('connection', (socket) => {
      this.#sockets.add(socket);
      socket.on('close', () => this.#sockets.delete(socket));
    });
    this.#http.listen(0, '127.0.0.1');
    await once(this.#http, 'listening');
    this.url = `http://127.0.0.1:${this.#http.address().port}`;
    return this;
  }

  stop() {
    for (const socket of this.#sockets) socket.destroy();
    this.#http.close();
  }

  /** The next stream or poll; fails when none comes in time. */
  visit(ms = VISIT_MS_MAX) {
    if (this.#visits.length > 0) return Promise.resolve(this.#visits.shift());
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        this.#waiting = this.#waiting.filter((one) => one !== take);
        reject(new Error(`the client did not come within ${ms} ms`));
      }, ms);
      const take = (visit) => { clearTimeout(timer); resolve(visit); };
      this.#waiting.push(take);
    });
  }

  #visit(visit) {
    this.visits.push(visit);
    const take = this.#waiting.shift();
    if (take) take(visit);
    else this.#visits.push(visit);
  }

  async #request(request, response) {
    const { pathname } = new URL(request.url, 'http://halley');
    const { socket } = request;
    const isNdjson = (request.headers.accept ?? '').includes('x-ndjson');
    const transport = pathname === '/v1/poll' ? 'poll'
      : pathname === '/v1/stream' ? (isNdjson ? 'ndjson' : 'sse')
        : pathname === '/v1/ws' && 'websocket'; // whoever took the upgrade out of it
    const body = request.method === 'GET' ? '' : await wholeOf(request);
    const isForm = /^application\/x-www-form-urlencoded/.test(request.headers['content-type']);
    if (transport && (body === '' || isForm)) {
      this.#visit(new Visit(transport, request, socket, response, body));
    } else {
      this.#operate(request, body, response);
    }
  }

  #take(operation) {
    this.operations.push({ ...operation, at: Date.now() });
    return this.answer(operation);
  }

  #message(visit, { ref: _, ...operation }, reply) {
    const answer = this.#take(operation);
    if (answer === null) visit.socket.destroy();
    else if (answer.ok) reply({ ok: answer.ok });
    else {
      reply({ error: { code: answer.error, message: 'no',
        ...(answer.retryAfter && { retry_after_s: answer.retryAfter }) } });
    }
  }

  /** The same over HTTP: one event, or one per line; follows and presence by their ids. */
  #operate(request, body, response) {
    const { pathname, searchParams } = new URL(request.url, 'http://halley');
    const isBatch = (request.headers['content-type'] ?? '').includes('ndjson');
    // http.md 28.1. `me/subjects/S/presence` asks about S, and of all others the last segment is
    // the name.
    const name = searchParams.get('subject')
      ?? decodeURIComponent(pathname.replace(/\/presence$/, '').split('/').at(-1));
    const lines = isBatch ? body.split('\n').filter(Boolean) : [body];
    const isPublish = pathname === '/v1/me/events';
    const op = isPublish ? 'publish' : pathname.includes('/presence') ? 'presence'
      : request.method === 'DELETE' ? 'unfollow' : 'follow';
    const answers = lines.map((line) => this.#take(isPublish || isBatch
      ? { op, ...JSON.parse(line) } : { op, subject: name }));
    if (answers.includes(null)) {
      request.socket.destroy();
      return;
    }
    if (isBatch && !isPublish && answers[0].ok) {
      response.writeHead(200, { 'Content-Type': 'application/json' })
        .end(JSON.stringify({ added: lines.length, already: 0, errors: [] }));
      return;
    }
    const texts = answers.map(({ ok, error }) => JSON.stringify(ok
      ?? { error: { code: error, message: 'no' } }));
    const one = isBatch ? { status: 200 } : answers[0];
    response.writeHead(one.ok ? 200 : one.status, {
      'Content-Type': isBatch ? 'application/x-ndjson' : 'application/json',
      ...(one.retryAfter && { 'Retry-After': one.retryAfter }),
    }).end(`${texts.join('\n')}\n`);
  }
}
