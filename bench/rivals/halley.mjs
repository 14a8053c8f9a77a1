// Halley itself, as built in this checkout: brain and edge with a worker per core.

import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { MOST, post } from '../lib/groups.mjs';
import { start as startHalley } from '../../test/lib/halley.mjs';
import { follows } from './lib/channels.mjs';

const LAUNCHER = process.env.LAUNCHER ?? fileURLToPath(new URL('../../halley', import.meta.url));

const halley = (title, transport, most) => ({
  title,
  needs: [{ what: 'the release: make build', is: () => existsSync(LAUNCHER) }],
  version: () => null,
  async start(plan) {
    const server = await startHalley({
      settings: { HALLEY_EDGE_WORKERS: `${plan.workers}`, HALLEY_LOG_LEVEL: 'warning' },
    });
    return {
      follow: () => post(`${server.apiUrl}/v1/follows`, follows(plan.connections)),
      pids: () => [server.brainPid(), server.edgePid()],
      parts: () => ({ brain: server.brainPid(), edge: server.edgePid() }),
      clients: ['--speak', 'halley', '--url', server.publicUrl, '--transport', transport],
      publish: ['--speak', 'halley', '--url', server.apiUrl],
      most,
      stop: () => server.stop(),
    };
  },
});

const batches = ['--connections', `${MOST.connections}`, '--batch', `${MOST.batch}`];

export const sse = halley('**Halley** (SSE)', 'sse', batches);
export const ws = halley('**Halley** (WebSocket)', 'ws', batches);
/** As the others are published to over HTTP, which have no batches. */
export const posts = halley('**Halley** (SSE), at most by single POSTs', 'sse', []);
