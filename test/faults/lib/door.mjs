// The operator's server that decides whether a user may connect (`auth.connect_url`): it lets in,
// refuses, fails or doesn't answer, for all or for some, by the faults of its lane. Its answers are
// in the history's `admissions`, by which let_in.mjs judges.

import { once } from 'node:events';
import { createServer } from 'node:http';
import { SECRET, isFromHalley } from '../../lib/endpoint.mjs';
import { freePort, scratchFile } from '../../lib/halley.mjs';

const STATUS = { yes: [200, 204], no: [401, 403], fails: [404, 429, 500, 503] };

/** One for this Halley, which is told of it; to be called before it starts. */
export async function doorOf(halley, { ttlMs, timeoutMs }) {
  const door = new Door(await freePort());
  await door.start();
  Object.assign(halley.settings, {
    HALLEY_AUTH_CONNECT_URL: `http://127.0.0.1:${door.port}/connect`,
    HALLEY_AUTH_CONNECT_TTL: `${ttlMs}ms`, HALLEY_AUTH_CONNECT_TIMEOUT: `${timeoutMs}ms`,
    HALLEY_HOOKS_SECRET_FILE: scratchFile(halley, 'hooks-secret', `${SECRET}\n`),
  });
  return door;
}

class Door {
  /** Where it notes what it says; the round sets it. */
  history = null;
  forged = 0;
  #says = new Map();
  #asked = 0;
  #server = null;

  constructor(port) {
    this.port = port;
  }

  /** From now on it says this of these users: `yes`, `no`, `fails`, or `hangs`. */
  say(users, says) {
    for (const user of users) this.#says.set(user, says);
  }

  /** Everybody is let in. */
  open() {
    this.#says.clear();
  }

  async start() {
    this.#server = createServer((request, response) => {
      const parts = [];
      request.on('data', (part) => parts.push(part));
      request.on('end', () => this.#answer(request, Buffer.concat(parts), response));
    });
    this.#server.listen(this.port, '127.0.0.1');
    await once(this.#server, 'listening');
  }

  #answer(request, body, response) {
    if (!isFromHalley(request.headers['halley-signature'] ?? '', body, SECRET)) {
      this.forged += 1;
      response.writeHead(401).end();
      return;
    }
    const { user } = JSON.parse(body).connect;
    const says = this.#says.get(user) ?? 'yes';
    this.history?.admitted(user, says in STATUS && says !== 'fails' ? says : 'none');
    if (says === 'hangs') return;
    this.#asked += 1;
    response.writeHead(STATUS[says][this.#asked % STATUS[says].length]).end();
  }

  /** Nobody listens any more, and open connections are cut. */
  async stop() {
    this.#server.closeAllConnections();
    this.#server.close();
    await once(this.#server, 'close');
  }
}
