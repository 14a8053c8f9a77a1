// A way to a server that can be cut, and can stand still: then it takes connections and bytes, and
// lets nothing through.

import { once } from 'node:events';
import { connect, createServer } from 'node:net';

export class Gate {
  #pairs = new Set();
  #isOpen = true;

  /** `port()`: of the server, as it is when somebody comes. */
  static async to(port) {
    const gate = new Gate();
    gate.server = createServer((client) => gate.#join(client, port())).listen(0, '127.0.0.1');
    await once(gate.server, 'listening');
    gate.port = gate.server.address().port;
    return gate;
  }

  #join(client, port) {
    const pair = [client, connect(port, '127.0.0.1')];
    this.#pairs.add(pair);
    const [one, other] = pair;
    for (const [from, to] of [[one, other], [other, one]]) {
      from.setNoDelay(true);
      from.pipe(to);
      from.on('error', () => to.destroy());
      from.on('close', () => { this.#pairs.delete(pair); to.destroy(); });
      if (!this.#isOpen) from.pause();
    }
  }

  cut() {
    for (const pair of this.#pairs) for (const socket of pair) socket.destroy();
  }

  stand() {
    this.#isOpen = false;
    for (const pair of this.#pairs) for (const socket of pair) socket.pause();
  }

  go() {
    this.#isOpen = true;
    for (const pair of this.#pairs) for (const socket of pair) socket.resume();
  }

  close() {
    this.cut();
    this.server.close();
  }
}
