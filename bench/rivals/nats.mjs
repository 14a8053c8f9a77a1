// NATS: clients by WebSocket, publishers by TCP. nats.conf has its settings.

import { fileURLToPath } from 'node:url';
import { join } from 'node:path';
import { freePort } from '../../test/lib/halley.mjs';
import { packaged, program } from './lib/needs.mjs';
import { CONNECTIONS_SPARE, Program, fill, scratch, url } from './lib/program.mjs';

const CONF = fileURLToPath(new URL('nats.conf', import.meta.url));

export const nats = {
  title: 'NATS (WebSocket)',
  needs: [program('nats-server', 'nats-server', '--version')],
  version: () => packaged('nats-server'),
  async start(plan) {
    const [folder, port, tcpPort] = [scratch(), await freePort(), await freePort()];
    const conf = fill(CONF, {
      PORT: port, TCP_PORT: tcpPort, CONNECTIONS: plan.connections + CONNECTIONS_SPARE,
    }, join(folder, 'nats.conf'));
    const server = new Program(folder, 'nats-server', ['--config', conf]);
    await server.ready(port, tcpPort);
    return {
      pids: () => server.pids(),
      clients: ['--speak', 'nats', '--url', url(port)],
      publish: ['--speak', 'nats', '--url', `nats://127.0.0.1:${tcpPort}`],
      // Each has up to 256 PUBs on their way before it asks whether all were taken.
      most: ['--connections', '4'],
      stop: () => server.stop(),
    };
  },
};
