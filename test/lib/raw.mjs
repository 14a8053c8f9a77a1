// Bytes on a socket, for what no decent client would send.

import { connect } from 'node:net';
import { parseJson } from './client.mjs';
import { until, within } from './wait.mjs';

/** Splits a byte stream of HTTP/1.1 answers; `heads` numbers the answers that have no body. */
export function parseAnswers(bytes, heads = []) {
  const answers = [];
  let rest = bytes;
  for (;;) {
    const end = rest.indexOf('\r\n\r\n');
    if (end < 0) return answers;
    const [line, ...fields] = rest.slice(0, end).toString('latin1').split('\r\n');
    const headers = Object.fromEntries(fields.map((field) => {
      const colon = field.indexOf(':');
      return [field.slice(0, colon).toLowerCase(), field.slice(colon + 1).trim()];
    }));
    const status = Number(line.split(' ')[1]);
    rest = rest.slice(end + 4);
    const bodyless = heads.includes(answers.length) || status < 200 || status === 204;
    const length = bodyless ? 0 : Number(headers['content-length'] ?? rest.length);
    if (rest.length < length) return answers;
    const body = rest.slice(0, length).toString();
    rest = rest.slice(length);
    answers.push({ line, status, headers, body, json: parseJson(body) });
  }
}

/** A TCP connection that remembers what came and whether the other side closed it. */
export class Raw {
  bytes = Buffer.alloc(0);
  isClosed = false;

  static async open(port, localAddress) {
    const raw = new Raw();
    raw.socket = connect({ port, host: '127.0.0.1', localAddress });
    raw.socket.on('data', (data) => { raw.bytes = Buffer.concat([raw.bytes, data]); });
    raw.socket.on('error', () => {});
    raw.socket.on('close', () => { raw.isClosed = true; });
    raw.socket.on('end', () => { raw.isClosed = true; });
    const connected = new Promise((resolve) => raw.socket.once('connect', resolve));
    await within('the connection is made', connected);
    return raw;
  }

  send(...parts) {
    for (const part of parts) this.socket.write(part);
    return this;
  }

  /** Sends so many pieces one by one, unless the server closes before. */
  async pour(count, piece) {
    for (let n = 0; n < count && !this.isClosed; n += 1) {
      this.send(piece(n));
      // What the server says meanwhile is read: a write that fails would throw it away.
      await new Promise((resolve) => { setImmediate(resolve); });
    }
  }

  answers(count, heads) {
    return until(`${count} answers, so far ${JSON.stringify(this.bytes.toString('latin1'))}`,
      () => {
        const found = parseAnswers(this.bytes, heads);
        return found.length >= count ? found : null;
      });
  }

  text(part) {
    return until(`${JSON.stringify(part)} on the socket`,
      () => this.bytes.toString('latin1').includes(part));
  }

  closed(ms) {
    return until('the server has closed the connection', () => this.isClosed, ms);
  }

  close() {
    this.socket.destroy();
  }
}

/** Sends `parts` on a new connection and gives the first answer and whether it stayed open. */
export async function exchange(port, ...parts) {
  const raw = await Raw.open(port);
  raw.send(...parts);
  try {
    const [answer] = await raw.answers(1);
    const expectsClose = /\bclose\b/i.test(answer.headers.connection ?? '');
    if (expectsClose) await raw.closed();
    return { ...answer, closed: raw.isClosed };
  } finally {
    raw.close();
  }
}
