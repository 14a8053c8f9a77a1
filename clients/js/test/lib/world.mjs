// A Halley to test against, clients that are closed at the end, and a proxy that misbehaves.

import { once } from 'node:events';
import { createServer, request } from 'node:http';
import { connect as dial } from 'node:net';
import { after } from 'node:test';
import ws from '../../../../test/node_modules/ws/wrapper.mjs';
import { connect } from '../../dist/index.js';
import { Queue } from '../../../../test/lib/wait.mjs';

const clients = new Set();
const proxies = new Set();
// A proxy that a failed test left would keep the process alive for ever.
after(() => {
  for (const { halley } of clients) halley.close();
  for (const one of proxies) one.close();
});

/** A client of the whole entry, and queues of what it told: `items`, `states`. */
export function client(url, options = {}) {
  const halley = connect(url, { WebSocket: ws, ...options });
  const one = { halley, items: new Queue(), states: new Queue(), reasons: [] };
  halley.onEvent((event) => one.items.push(event));
  halley.onGap((gap) => one.items.push({ gap }));
  halley.onState((state, why) => {
    one.states.push(state);
    if (why) one.reasons.push(why.code);
  });
  clients.add(one);
  return one;
}

/** Takes states until the one that is waited for. */
export async function reaches(one, state) {
  while (await one.states.next(state) !== state);
}

/**
 * A proxy in front of `port`. `hold(path)` says what it does to a request: `undefined` passes it
 * on, `refuse` answers 403 with a page of its own, `buffer` gives nothing until the answer is
 * whole, `head` gives the first part of the answer alone, `hang` says nothing. `paths` has all that
 * it was asked. `cut()` ends all connections; from `away()` to `back()` there are none.
 */
export async function proxy(port, hold) {
  const paths = [];
  const server = createServer((incoming, outgoing) => {
    const { method, headers, url } = incoming;
    paths.push(url);
    const what = hold(url, incoming);
    if (what === 'hang') return;
    if (what === 'refuse') {
      outgoing.writeHead(403, { 'content-type': 'text/html' }).end('<h1>Blocked</h1>');
      return;
    }
    const onward = request({ host: '127.0.0.1', port, method, path: url, headers }, (answer) => {
      if (what !== 'buffer') outgoing.writeHead(answer.statusCode, answer.headers).flushHeaders();
      const held = [];
      answer.on('data', (chunk) => {
        if (what === undefined || (what === 'head' && held.length === 0)) outgoing.write(chunk);
        held.push(chunk);
      });
      answer.on('end', () => {
        if (what === 'buffer') outgoing.writeHead(answer.statusCode, answer.headers);
        outgoing.end(what === 'buffer' ? Buffer.concat(held) : undefined);
      });
      answer.on('error', () => outgoing.destroy());
    });
    onward.on('error', () => outgoing.destroy());
    outgoing.on('close', () => onward.destroy());
    incoming.pipe(onward);
  });
  server.on('upgrade', (incoming, socket) => {
    paths.push(incoming.url);
    socket.on('error', () => {});
    const what = hold(incoming.url, incoming);
    if (what === 'hang') return;
    if (what) return void socket.end('HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n');
    const onward = dial(port, '127.0.0.1', () => {
      const lines = incoming.rawHeaders.map((text, at) => text + (at % 2 ? '\r\n' : ': '));
      onward.write(`GET ${incoming.url} HTTP/1.1\r\n${lines.join('')}\r\n`);
      socket.pipe(onward).pipe(socket);
    });
    onward.on('error', () => socket.destroy());
    socket.on('close', () => onward.destroy());
  });
  const sockets = new Set();
  let isAway = false;
  server.on('connection', (socket) => {
    if (isAway) return void socket.destroy();
    sockets.add(socket);
    socket.on('close', () => sockets.delete(socket));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const cut = () => { for (const socket of sockets) socket.destroy(); };
  const close = () => {
    server.close();
    cut();
  };
  const away = () => {
    isAway = true;
    cut();
  };
  const back = () => { isAway = false; };
  const one = { paths, cut, away, back, close,
    url: `http://127.0.0.1:${server.address().port}` };
  proxies.add(one);
  return one;
}
