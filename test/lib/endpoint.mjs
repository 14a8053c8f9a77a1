// A server that hooks are sent to (docs/guides/hooks.md). It checks each signature as the guide
// says, and keeps what it took, in order; a request counts as taken when its answer was 2xx.

import { createHmac, timingSafeEqual } from 'node:crypto';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import { sleep } from './wait.mjs';

export const SECRET = '0123456789abcdef0123456789abcdef';

/** As the guide has it. */
export function isFromHalley(header, body, secret, nowMs = Date.now()) {
  const [, time] = /^t=(\d+)/.exec(header) ?? [];
  if (!(Math.abs(nowMs / 1000 - time) < 300)) return false;
  const mac = createHmac('sha256', secret).update(`v1:${time}:`).update(body).digest('hex');
  const wanted = Buffer.from(`v1=${mac}`);
  return header.split(',').map((part) => Buffer.from(part))
    .some((part) => part.length === wanted.length && timingSafeEqual(part, wanted));
}

export class Endpoint {
  /** What was taken, each once, by its id. */
  hooks = [];
  requests = 0;
  /** Hooks that came again. */
  repeated = 0;
  forged = 0;
  /** Called for each request that is signed well; gives the status. */
  answer = () => 204;
  /** Where there is one, it gets each hook that was taken, and nothing is kept here. */
  take = null;
  #seen = new Set();
  #server = null;

  /** What time it thinks it is. */
  now = () => Date.now();
  /** Requests are read and not answered. */
  hangs = false;
  /** How long an answer takes. */
  pauseMs = 0;

  /** `tls`: files with its key and certificate, if it is to be spoken to by https. */
  constructor(port, tls = null) {
    this.port = port;
    this.tls = tls;
  }

  get url() { return `http${this.tls ? 's' : ''}://127.0.0.1:${this.port}/hooks`; }

  /** As it was. */
  mend() {
    Object.assign(this, { hangs: false, pauseMs: 0, answer: () => 204 });
  }

  async start() {
    const listener = (request, response) => {
      const parts = [];
      request.on('data', (part) => parts.push(part));
      request.on('end', async () => {
        if (this.hangs) return;
        if (this.pauseMs > 0) await sleep(this.pauseMs);
        response.statusCode = this.#take(request, Buffer.concat(parts));
        response.end();
      });
    };
    this.#server = this.tls ? createTlsServer({ key: readFileSync(this.tls.key),
      cert: readFileSync(this.tls.cert) }, listener) : createServer(listener);
    this.#server.listen(this.port, '127.0.0.1');
    await once(this.#server, 'listening');
    return this;
  }

  #take(request, body) {
    this.requests += 1;
    const signature = request.headers['halley-signature'] ?? '';
    if (!isFromHalley(signature, body, SECRET, this.now())) {
      this.forged += 1;
      return 401;
    }
    const status = this.answer(body);
    if (status < 200 || status >= 300) return status;
    for (const hook of JSON.parse(body).hooks) {
      if (this.take !== null) this.take(hook);
      else if (this.#seen.has(hook.id)) this.repeated += 1;
      else {
        this.hooks.push(hook);
        this.#seen.add(hook.id);
      }
    }
    return status;
  }

  /** Nothing listens any more, and open connections are cut. */
  async stop() {
    this.#server.closeAllConnections();
    this.#server.close();
    await once(this.#server, 'close');
  }

  of(type) { return this.hooks.filter((hook) => hook.type === type); }
}
