// Users who come and go (test/lib/comings.mjs) end when the test ends them, even those that are
// still to come by then.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:net';
import test from 'node:test';
import { Comings } from '../lib/comings.mjs';
import { sleep } from '../lib/wait.mjs';

/** Welcomes whoever comes with this, and knows how many are there. */
async function listening(welcome = 'id: c1\n\n') {
  const sockets = new Set();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on('error', () => {});
    socket.on('close', () => sockets.delete(socket));
    socket.once('data', () => socket.write(`HTTP/1.1 200 OK\r\n\r\n${welcome}`));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return { server, sockets, publicPort: server.address().port };
}

test('nobody comes after all have left, though a round is under way; they may gather anew',
  async () => {
    const halley = await listening();
    const all = new Comings(halley, { users: 20, follows: 1, seed: 1, leaveMs: 10, asks: false });
    await all.gather(8, 1_000);
    assert.equal(all.here.size, 8);
    const round = all.comeAndGo(200, 1);
    await sleep(100);
    const before = all.seen.comings;
    all.leaveAll();
    await round;
    assert.deepEqual([all.here.size, all.sockets.size, all.seen.comings], [0, 0, before]);
    await all.gather(8, 1_000);
    assert.equal(all.here.size, 8);
    all.leaveAll();
    halley.server.close();
  });

test('who is welcomed has come once, though a heartbeat comes with it', async () => {
  const halley = await listening('id: c1\n\n: heartbeat\nid: c2\n\n');
  const all = new Comings(halley, { users: 4, follows: 1, seed: 1, leaveMs: 10, asks: false });
  const came = [];
  all.onHere = (user) => came.push(user);
  await all.gather(4, 1_000);
  all.leaveAll();
  halley.server.close();
  assert.deepEqual(came.sort(), [0, 1, 2, 3]);
});
