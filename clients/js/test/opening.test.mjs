// Requests while a connection is being opened, at a scripted WebSocket and `fetch`.

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { connect } from '../dist/index.js';
import { until } from '../../../test/lib/wait.mjs';

const clients = [];
// One that a failed test left would keep the process alive.
after(() => { for (const one of clients) one.close(); });

/** A client that is open, and what it opened: `sockets`; and what it asked for: `requests`. */
async function opened(options) {
  const [sockets, requests] = [[], []];
  class Socket {
    said = [];
    isOpen = false;

    constructor(url) {
      this.url = url;
      sockets.push(this);
    }

    open() {
      this.isOpen = true;
      this.onopen();
      this.onmessage({ data: '{"cursor":"c0"}' });
    }

    send(text) {
      if (!this.isOpen) throw new DOMException('Still in CONNECTING state', 'InvalidStateError');
      this.said.push(JSON.parse(text));
    }

    close() {}
  }
  const ask = (url, { method }) => new Promise((resolve) => {
    requests.push({ url, method, answer: (json) => resolve(Response.json(json)) });
  });
  const halley = connect('http://localhost:1', {
    user: 'bob', transports: ['websocket'], WebSocket: Socket, fetch: ask, ...options,
  });
  clients.push(halley);
  await until('the first', () => sockets.length === 1);
  sockets[0].open();
  return { halley, sockets, requests };
}

/** As a better transport is tried again in place of the one that is there: the state stays. */
async function reopens({ halley, sockets }) {
  const { length } = sockets;
  halley.core.lost({ code: 'reopen', atOnce: true, quiet: true });
  await until('the next', () => sockets.length > length);
  assert.equal(halley.state, 'open');
}

test('what is published while a WebSocket is being opened goes by a request', async () => {
  const one = await opened();
  await reopens(one);
  const published = one.halley.publish('room', 1, { id: 'mine' });
  await Promise.race([published, until('a request', () => one.requests.length === 1)]);
  const [{ method, url, answer }] = one.requests;
  assert.match(`${method} ${url}`, /^POST .*me\/events/);
  answer({ id: 'me:bob:mine' });
  assert.deepEqual(await published, { id: 'me:bob:mine' });
  const [, second] = one.sockets;
  second.open();
  const later = one.halley.publish('room', 2);
  await until('it is sent', () => second.said.length === 1);
  second.onmessage({ data: JSON.stringify({ ref: second.said[0].ref, ok: { id: 'x' } }) });
  assert.deepEqual(await later, { id: 'x' });
  one.halley.close();
});

test('a subject that is wanted meanwhile is said in band, and by the next WebSocket', async () => {
  const one = await opened();
  await reopens(one);
  const subscribed = one.halley.subscribe('room');
  const [, second] = one.sockets;
  second.open();
  await until('it is said', () => second.said.length === 1);
  const [{ op, subject, ref }] = second.said;
  assert.deepEqual([op, subject], ['subscribe', 'room']);
  second.onmessage({ data: JSON.stringify({ ref, ok: { added: 1, already: 0 } }) });
  await subscribed;
  await reopens(one);
  assert.match(one.sockets[2].url, /subject=room/);
  one.halley.close();
});
