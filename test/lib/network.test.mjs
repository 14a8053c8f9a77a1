// The network that tests put between clients and server does what its caller sets, and nothing
// else.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import { createInterface } from 'node:readline';
import test from 'node:test';
import { fileURLToPath } from 'node:url';
import { network } from './network.mjs';
import { Queue, sleep, until } from './wait.mjs';

const PROGRAM = fileURLToPath(new URL('network.mjs', import.meta.url));

/** A server that sends back what it gets, and what happened to its connections. */
async function echo() {
  const ends = new Queue();
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    socket.on('data', (bytes) => {
      if (!socket.write(bytes)) socket.pause();
    });
    socket.on('drain', () => socket.resume());
    socket.on('end', () => {
      ends.push('end');
      socket.end();
    });
    socket.on('error', ({ code }) => ends.push(code));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return { port: server.address().port, ends, close: () => server.close() };
}

/** A client: what it got so far, and how it ended. */
function client(port) {
  const one = { socket: connect(port, '127.0.0.1'), text: '', ends: new Queue() };
  one.socket.on('data', (bytes) => { one.text += bytes; });
  one.socket.on('end', () => one.ends.push('end'));
  one.socket.on('error', ({ code }) => one.ends.push(code));
  one.gets = (text) => until(`"${text.slice(0, 20)}" is back`, () => one.text === text);
  return one;
}

/** `body(way, client, server)`, and everything is closed. */
const through = (conditions, body) => async () => {
  const server = await echo();
  const way = await network({ to: server.port, ...conditions });
  const one = client(way.port);
  try {
    await body(way, one, server);
  } finally {
    one.socket.destroy();
    way.close();
    server.close();
  }
};

/** Milliseconds until `text` is back. */
async function trip(one, text) {
  const before = one.text;
  const since = performance.now();
  one.socket.write(text);
  await one.gets(before + text);
  return performance.now() - since;
}

test('without conditions bytes and ends pass as they are', through({}, async (way, one, server) => {
  await trip(one, 'a');
  one.socket.end();
  assert.equal(await server.ends.next(), 'end');
  assert.equal(await one.ends.next(), 'end');
  await until('none is left', () => way.connections.size === 0);
}));

test('latency is each way, and a round trip for the opening',
  through({ latencyMs: 100 }, async (way, one) => {
    const first = await trip(one, 'a');
    assert.ok(first >= 399, `${first}`);
    const second = await trip(one, 'b');
    assert.ok(second >= 199, `${second}`);
    way.set({ latencyMs: 0 });
    await trip(one, 'c');
  }));

test('with jitter the bytes are those that were sent, in their order',
  through({ latencyMs: 5, jitterMs: 40, seed: 7 }, async (_, one) => {
    let all = '';
    for (let n = 0; n < 100; n += 1) {
      one.socket.write(`${n} `);
      all += `${n} `;
      await sleep(1);
    }
    await one.gets(all);
  }));

test('bandwidth: so many bytes take so long, and they are all there',
  through({ bytesPerSecond: 100_000 }, async (way, one) => {
    const passed = await trip(one, 'x'.repeat(50_000));
    assert.ok(passed >= 499, `${passed}`);
    way.set({ bytesPerSecond: 0 });
    await trip(one, 'y'.repeat(3_000_000));
  }));

test('who doesn\'t read has a bounded part of it on the way', through({}, async (way, one) => {
  one.socket.removeAllListeners('data');
  one.socket.pause();
  const piece = Buffer.alloc(1 << 20);
  // More than the kernel's eight buffers take, also where a benchmark has raised their bounds.
  const most = 512;
  let given = 0;
  const more = () => {
    while (given < most && one.socket.write(piece)) given += 1;
  };
  one.socket.on('drain', more);
  more();
  await sleep(500);
  assert.ok(given < most, `${given} MiB were taken`);
  one.socket.resume();
  await until('all have been taken', () => given === most);
}));

test('a half-open connection says nothing to either end; the next one works',
  through({}, async (way, one, server) => {
    await trip(one, 'a');
    way.silence();
    one.socket.write('b');
    await one.ends.none();
    await server.ends.none();
    assert.equal(one.text, 'a');
    const next = client(way.port);
    await trip(next, 'c');
    next.socket.destroy();
    one.socket.end();
    way.go();
    await one.gets('ab');
    assert.equal(await one.ends.next(), 'end');
  }));

test('an end that goes while it is silent isn\'t told to the other before it speaks again',
  through({}, async (way, one, server) => {
    await trip(one, 'a');
    way.silence();
    one.socket.resetAndDestroy();
    await server.ends.none();
    way.go();
    assert.equal(await server.ends.next(), 'ECONNRESET');
  }));

test('a stalled network holds new connections too', through({}, async (way, one) => {
  way.stall();
  const next = client(way.port);
  next.socket.write('b');
  await sleep(200);
  assert.equal(next.text, '');
  way.go();
  await next.gets('b');
  await trip(one, 'a');
  next.socket.destroy();
}));

test('reset: both ends get an RST', through({}, async (way, one, server) => {
  await trip(one, 'a');
  way.reset();
  assert.equal(await one.ends.next(), 'ECONNRESET');
  assert.equal(await server.ends.next(), 'ECONNRESET');
}));

test('cut: both ends get a FIN', through({}, async (way, one, server) => {
  await trip(one, 'a');
  way.cut();
  assert.equal(await one.ends.next(), 'end');
  assert.equal(await server.ends.next(), 'end');
}));

test('away and back', through({}, async (way, one) => {
  await trip(one, 'a');
  way.away();
  assert.equal(await one.ends.next(), 'ECONNRESET');
  const refused = client(way.port);
  assert.equal(await refused.ends.next(), 'ECONNRESET');
  way.back();
  const next = client(way.port);
  await trip(next, 'b');
  next.socket.destroy();
}));

test('no server: the client is reset', async () => {
  const server = await echo();
  server.close();
  const way = await network({ to: server.port });
  const one = client(way.port);
  assert.equal(await one.ends.next(), 'ECONNRESET');
  way.close();
});

test('by chance connections are reset and go silent, from the seed', async () => {
  const server = await echo();
  const way = await network({ to: server.port, resetsS: 0.2, silencesS: 1_000 });
  const one = client(way.port);
  assert.equal(await one.ends.next(), 'ECONNRESET');
  way.set({ resetsS: 0, silencesS: 0.2 });
  const next = client(way.port);
  await until('it is silent', () => [...way.connections].some(({ isSilent }) => isSilent));
  next.socket.destroy();
  way.close();
  server.close();
});

test('as a program: its port, what lines say, and its end with stdin', async () => {
  const server = await echo();
  const program = spawn(process.execPath, [PROGRAM, '--to', `${server.port}`, '--latency', '50'],
    { stdio: ['pipe', 'pipe', 'inherit'] });
  const ended = once(program, 'exit');
  const lines = new Queue();
  createInterface({ input: program.stdout }).on('line', (line) => lines.push(line));
  const say = (line) => {
    program.stdin.write(`${line}\n`);
    return lines.next(line);
  };
  const one = client(Number(await lines.next('the port')));
  const passed = await trip(one, 'a');
  assert.ok(passed >= 199, `${passed}`);
  assert.equal(await say('count'), 'ok 1');
  assert.equal(await say('latency 0'), 'ok');
  assert.equal(await say('latency fast'), 'bad: latency fast');
  assert.equal(await say('explode'), 'bad: explode');
  assert.equal(await say('reset'), 'ok');
  assert.equal(await one.ends.next(), 'ECONNRESET');
  program.stdin.end();
  assert.deepEqual(await ended, [0, null]);
  server.close();
});

test('as a program without a port it says how it is used', async () => {
  const program = spawn(process.execPath, [PROGRAM], { stdio: ['ignore', 'pipe', 'pipe'] });
  const [said] = await once(program.stderr, 'data');
  assert.match(`${said}`, /^usage: .*--to PORT/);
  const [code] = await once(program, 'exit');
  assert.equal(code, 2);
});
