// Socket.IO on Node, in one process as documented and in a cluster. socketio/server.mjs has its
// settings, socketio/package-lock.json its version.

import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { freePort } from '../../test/lib/halley.mjs';
import { file } from './lib/needs.mjs';
import { Program, scratch, url } from './lib/program.mjs';

const path = (name) => fileURLToPath(new URL(`socketio/${name}`, import.meta.url));
const PACKAGE = path('node_modules/socket.io/package.json');

const socketio = (title, processesOf) => ({
  title,
  needs: [file('the Node packages of bench/rivals/socketio', PACKAGE)],
  version: () => JSON.parse(readFileSync(PACKAGE, 'utf8')).version,
  async start(plan) {
    const [folder, port] = [scratch(), await freePort()];
    const server = new Program(folder, process.execPath,
      [path('server.mjs'), `${port}`, `${processesOf(plan)}`], { NODE_ENV: 'production' });
    await server.ready(port);
    const speak = ['--speak', 'socketio', '--url', url(port)];
    return { pids: () => server.pids(), clients: speak, publish: speak, stop: () => server.stop() };
  },
});

export const single = socketio('Socket.IO on Node (WebSocket)', () => 1);
export const clustered = socketio('Socket.IO in a cluster (WebSocket)', (plan) => plan.workers);
