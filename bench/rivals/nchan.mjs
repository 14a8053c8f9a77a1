// Nchan: publish and subscribe as a module of nginx. nginx.conf has its settings.

import { fileURLToPath } from 'node:url';
import { join } from 'node:path';
import { freePort } from '../../test/lib/halley.mjs';
import { file, packaged } from './lib/needs.mjs';
import { CONNECTIONS_SPARE, Program, fill, scratch, url } from './lib/program.mjs';

const NGINX = '/usr/sbin/nginx';
const MODULE = '/usr/lib/nginx/modules/ngx_nchan_module.so';
const CONF = fileURLToPath(new URL('nginx.conf', import.meta.url));

export const nchan = {
  title: 'Nchan in nginx (SSE)',
  needs: [file('nginx', NGINX), file('libnginx-mod-nchan', MODULE)],
  version: () => packaged('libnginx-mod-nchan'),
  async start(plan) {
    const [folder, port] = [scratch(), await freePort()];
    const conf = fill(CONF, {
      FOLDER: folder, PORT: port, MODULE, WORKERS: plan.workers,
      USER: process.getuid() === 0 ? 'user root;' : '',
      CONNECTIONS: plan.connections + CONNECTIONS_SPARE,
    }, join(folder, 'nginx.conf'));
    const server = new Program(folder, NGINX, ['-p', folder, '-e', 'stderr', '-c', conf]);
    await server.ready(port);
    const speak = ['--speak', 'nchan', '--url', url(port)];
    return { pids: () => server.pids(), clients: speak, publish: speak, stop: () => server.stop() };
  },
};
