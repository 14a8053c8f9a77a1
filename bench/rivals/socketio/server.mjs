// Socket.IO as its documentation says to run it: https://socket.io/docs/v4/. A client emits `join`
// with a channel, `POST /publish/CHANNEL` emits the JSON of its body to the channel as event `m`.
//
//     node server.mjs PORT [PROCESSES]
//
// Settings: the pages `performance-tuning` and `memory-usage`. The add-on `bufferutil` is there
// (`utf-8-validate` has no work since Node has `buffer.isUtf8`); the reference to the first HTTP
// request is dropped; WebSocket alone, without compression. Of the engines that the pages offer
// besides, `eiows` needs Node 22, and µWebSockets.js is in no registry.
//
// One process, as documented. With PROCESSES the cluster adapter joins as many
// (https://socket.io/docs/v4/cluster-adapter/); sticky sessions are for long-polling, which is off.

import cluster from 'node:cluster';
import { createServer } from 'node:http';
import { createAdapter, setupPrimary } from '@socket.io/cluster-adapter';
import { Server } from 'socket.io';

const BACKLOG = 1024;
const BODY_BYTES_MAX = 65_536;

const [port, processes] = process.argv.slice(2).map(Number);

function publish(io, channel, body) {
  io.to(channel).emit('m', JSON.parse(body));
  return { sessions: io.of('/').adapter.rooms.get(channel)?.size ?? 0 };
}

function answer(response, status, body) {
  const text = JSON.stringify(body);
  response.writeHead(status, {
    'content-type': 'application/json', 'content-length': Buffer.byteLength(text),
  });
  response.end(text);
}

function serve() {
  const http = createServer((request, response) => {
    const channel = /^\/publish\/([^/]+)$/.exec(request.url)?.[1];
    if (request.method !== 'POST' || channel === undefined) {
      answer(response, 404, { error: 'expected POST /publish/CHANNEL' });
      return;
    }
    let body = '';
    request.setEncoding('utf8');
    request.on('data', (data) => {
      body += data;
      if (body.length > BODY_BYTES_MAX) request.destroy();
    });
    request.on('end', () => {
      try {
        answer(response, 200, publish(io, channel, body));
      } catch (error) {
        answer(response, 400, { error: error.message });
      }
    });
  });
  const io = new Server(http, {
    transports: ['websocket'], perMessageDeflate: false, httpCompression: false,
    serveClient: false,
  });
  if (cluster.isWorker) io.adapter(createAdapter());
  io.engine.on('connection', (socket) => { socket.request = null; });
  io.on('connection', (socket) => {
    socket.on('join', (channel) => { if (typeof channel === 'string') socket.join(channel); });
  });
  http.listen({ port, host: '127.0.0.1', backlog: BACKLOG });
}

if (cluster.isPrimary && processes > 1) {
  setupPrimary();
  for (let started = 0; started < processes; started += 1) cluster.fork();
} else {
  serve();
}
