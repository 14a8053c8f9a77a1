// A user's own state, and loops that are too slow, at a scripted WebSocket.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { connect } from '../dist/index.js';

/** Sockets that were opened; `said` has what each was sent, `tell` brings a message. */
function sockets() {
  const all = [];
  class Socket {
    said = [];

    constructor() {
      all.push(this);
      queueMicrotask(() => {
        this.onopen();
        this.tell({ cursor: 'c0' });
      });
    }

    send(text) {
      this.said.push(JSON.parse(text));
    }

    tell(message) {
      this.onmessage({ data: JSON.stringify(message) });
    }

    close() {}
  }
  const halley = connect('http://localhost:1', {
    user: 'bob', transports: ['websocket'], WebSocket: Socket,
  });
  const next = async () => {
    const { length } = all;
    while (all.length === length || halley.state !== 'open') await turn();
    return all.at(-1);
  };
  return { halley, next };
}

const turn = () => new Promise((done) => { setTimeout(done, 5); });
const states = ({ said }) => said.filter(({ op }) => op === 'state').map(({ data }) => data);

async function until(isSo) {
  for (let n = 0; !isSo(); n += 1) {
    assert.ok(n < 6_000, `${isSo}`);
    await turn();
  }
}

test('a state that is tried again is the one that was said last by then', async () => {
  const { halley, next } = sockets();
  const socket = await next();
  const first = halley.say('a');
  await until(() => socket.said.length === 1);
  socket.tell({ ref: socket.said[0].ref, error: { code: 'brain_away', retry_after_s: 0.2 } });
  const second = halley.say('b');
  await until(() => socket.said.length === 2);
  socket.tell({ ref: socket.said[1].ref, ok: {} });
  await second;
  await until(() => socket.said.length === 3);
  socket.tell({ ref: socket.said[2].ref, ok: {} });
  await first;
  assert.deepEqual(states(socket), ['a', 'b', 'b']);
  socket.onclose({ reason: '' });
  const again = await next();
  assert.deepEqual(states(again), ['b']);
  halley.close();
});

test('a loop that is too slow is told from when to when, and presence has no time', async () => {
  const { halley, next } = sockets();
  const loop = halley.events();
  const socket = await next();
  const presence = { subject: 'room', user: 'ann', state: 'join' };
  for (let n = 0; n < 5_001; n += 1) {
    socket.tell({ presence });
    socket.tell({ id: `${n}`, subject: 's', at: 1_000 + n, data: n });
  }
  const { value: { gap } } = await loop.next();
  assert.deepEqual(gap, { from: 1_000, to: 3_499, reason: 'slow_consumer' });
  for (let n = 0; n < 10_002; n += 1) socket.tell({ presence });
  const { value: { gap: none } } = await loop.next();
  assert.equal(none.reason, 'slow_consumer');
  await loop.return();
  halley.close();
});
