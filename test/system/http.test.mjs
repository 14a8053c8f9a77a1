// HTTP/1.1 at the edge, by bytes on a socket (RFC 9112): the answers, the fate of the connection,
// and that no other client notices.

import assert from 'node:assert/strict';
import { after, before } from 'node:test';
import { http, publish } from '../lib/client.mjs';
import { assertError } from '../lib/expect.mjs';
import { start, test } from '../lib/halley.mjs';
import { exchange, Raw } from '../lib/raw.mjs';
import { closeStreams, sse } from '../lib/streams.mjs';

let halley;
let witness;
let beats = 0;
before(async () => {
  halley = await start();
  witness = await sse(halley, 'witness');
});
after(async () => {
  closeStreams();
  await halley?.stop();
});

/** The stream that was open before all this still gets its events. */
async function assertUndisturbed() {
  beats += 1;
  await publish(halley, 'witness', beats);
  assert.equal((await witness.event('the witness still hears')).data, beats);
}

const ok = 'GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n';
const post = (body, more = '') =>
  `POST /v1/events HTTP/1.1\r\nHost: h\r\n${more}Content-Length: ${body.length}\r\n\r\n${body}`;
const event = '{"subject":"nobody","data":1}';

test('keep-alive: ten requests, one after the other, on one connection', async () => {
  const raw = await Raw.open(halley.apiPort);
  for (let n = 1; n <= 10; n += 1) {
    raw.send(ok);
    assert.equal((await raw.answers(n))[n - 1].status, 200);
  }
  assert.equal(raw.isClosed, false);
  raw.close();
});

test('the console comes compressed to who can read that (link.md 8.2)', async () => {
  const url = `${halley.apiUrl}/console/console.js`;
  const plain = await http('GET', url);
  assert.equal(plain.headers['content-encoding'], undefined);
  const zipped = await http('GET', url, { headers: { 'accept-encoding': 'br, gzip' } });
  assert.equal(zipped.headers['content-encoding'], 'gzip');
  const bytes = ({ headers }) => Number(headers['content-length']);
  assert.ok(bytes(zipped) < bytes(plain) / 2, `${bytes(zipped)} of ${bytes(plain)}`);
});

test('pipelining (RFC 9112 9.3.2): answers come in the order of the requests', async () => {
  const raw = await Raw.open(halley.apiPort);
  raw.send(ok + post(event) + 'GET /v1/users/pipe HTTP/1.1\r\nHost: h\r\n\r\n'
    + 'GET /nothing HTTP/1.1\r\nHost: h\r\n\r\n' + post(event) + ok);
  const answers = await raw.answers(6);
  assert.deepEqual(answers.map((answer) => answer.status), [200, 200, 200, 404, 200, 200]);
  assert.equal(answers[2].json.user, 'pipe');
  raw.close();
});

test('a request that arrives byte by byte', async () => {
  const raw = await Raw.open(halley.apiPort);
  raw.socket.setNoDelay(true);
  for (const byte of post(event)) {
    raw.send(byte);
    await new Promise((resolve) => setImmediate(resolve));
  }
  assert.equal((await raw.answers(1))[0].status, 200);
  raw.close();
});

test('a chunked body (RFC 9112 7.1), with extensions and trailers, cut anywhere', async () => {
  const raw = await Raw.open(halley.apiPort);
  raw.send('POST /v1/events HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\n',
    event.slice(0, 5), '\r\n', (event.length - 5).toString(16).toUpperCase(), '\r\n',
    event.slice(5), '\r\n0\r\nTrailer: x\r\n\r\n', ok);
  assert.deepEqual((await raw.answers(2)).map((answer) => answer.status), [200, 200]);
  raw.close();
});

test('HEAD in a pipeline has no body', async () => {
  const raw = await Raw.open(halley.apiPort);
  raw.send('HEAD /healthz HTTP/1.1\r\nHost: h\r\n\r\n', ok);
  const answers = await raw.answers(2, [0]);
  assert.deepEqual(answers.map((answer) => answer.status), [200, 200]);
  raw.close();
});

test('Connection: close is honoured', async () => {
  const raw = await Raw.open(halley.apiPort);
  raw.send('GET /healthz HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n');
  assert.equal((await raw.answers(1))[0].status, 200);
  await raw.closed();
});

test('HTTP/1.0 is closed after the answer, and kept with Connection: keep-alive', async () => {
  const closing = await Raw.open(halley.apiPort);
  closing.send('GET /healthz HTTP/1.0\r\n\r\n');
  assert.equal((await closing.answers(1))[0].status, 200);
  await closing.closed();
  const kept = await Raw.open(halley.apiPort);
  const request = 'GET /healthz HTTP/1.0\r\nConnection: keep-alive\r\n\r\n';
  kept.send(request);
  await kept.answers(1);
  kept.send(request);
  assert.equal((await kept.answers(2))[1].status, 200);
  kept.close();
});

const malformed = {
  'no request line': 'hello\r\n\r\n',
  'binary noise': Buffer.from([0, 255, 1, 2, 13, 10, 13, 10]),
  'a TLS hello': Buffer.from('16030100050100000100', 'hex'),
  'no Host in HTTP/1.1 (RFC 9112 3.2)': 'GET /healthz HTTP/1.1\r\n\r\n',
  'two Hosts (RFC 9112 3.2)': 'GET /healthz HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n',
  'a space before the colon (RFC 9112 5.1)': 'GET /healthz HTTP/1.1\r\nHost : h\r\n\r\n',
  'a bare NUL in a header': 'GET /healthz HTTP/1.1\r\nHost: h\r\nX: a\0b\r\n\r\n',
  'a folded header (RFC 9112 5.2)': 'GET /healthz HTTP/1.1\r\nHost: h\r\nX: a\r\n b\r\n\r\n',
  'a length that is no number': 'POST /v1/events HTTP/1.1\r\nHost: h\r\nContent-Length: x\r\n\r\n',
  'a negative length': 'POST /v1/events HTTP/1.1\r\nHost: h\r\nContent-Length: -1\r\n\r\n',
  'two lengths (RFC 9112 6.3)':
    'POST /v1/events HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab',
  'length and chunked (RFC 9112 6.1)': 'POST /v1/events HTTP/1.1\r\nHost: h\r\n'
    + 'Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n',
  'a chunk size that is none':
    'POST /v1/events HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n',
  'a chunk size that overflows': 'POST /v1/events HTTP/1.1\r\nHost: h\r\n'
    + 'Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n',
  'a chunk longer than it says':
    'POST /v1/events HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n',
};
for (const [what, bytes] of Object.entries(malformed)) {
  test(`malformed: ${what}: 400, and the connection is closed`, async () => {
    for (const port of [halley.apiPort, halley.publicPort]) {
      const raw = await Raw.open(port);
      raw.send(bytes);
      if (what === 'a TLS hello') raw.socket.end();
      // On the public listener a body's path may be refused by its name first: 404 or 405.
      const [answer] = await raw.answers(1);
      if (port === halley.apiPort || answer.status === 400) assertError(answer, 400);
      else assert.ok([404, 405].includes(answer.status), `status ${answer.status}`);
      await raw.closed();
    }
    await assertUndisturbed();
  });
}

test('a transfer coding nobody knows: 400 or 501, closed', async () => {
  const answer = await exchange(halley.apiPort,
    'POST /v1/events HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip\r\n\r\n');
  assert.ok([400, 501].includes(answer.status));
  assertError(answer, answer.status);
});

test('HTTP/2.0 by its number: 400 or 505, closed', async () => {
  const answer = await exchange(halley.apiPort, 'GET /healthz HTTP/2.0\r\nHost: h\r\n\r\n');
  assert.ok([400, 505].includes(answer.status));
  assertError(answer, answer.status);
});

test('a request line that is too long: 414', async () => {
  assertError(await exchange(halley.apiPort,
    `GET /${'x'.repeat(70_000)} HTTP/1.1\r\nHost: h\r\n\r\n`), 414);
  await assertUndisturbed();
});

test('a header that is too large, and too many headers: 431', async () => {
  const head = 'GET /healthz HTTP/1.1\r\nHost: h\r\n';
  assertError(await exchange(halley.apiPort, `${head}X: ${'x'.repeat(70_000)}\r\n\r\n`), 431);
  assertError(await exchange(halley.apiPort, `${head}${'X: y\r\n'.repeat(2_000)}\r\n`), 431);
  await assertUndisturbed();
});

test('a head that never ends is not read for ever', async () => {
  const raw = await Raw.open(halley.publicPort);
  raw.send('GET / HTTP/1.1\r\nHost: h\r\n');
  await raw.pour(200, (n) => `X-${n}: ${'y'.repeat(1_000)}\r\n`);
  assertError((await raw.answers(1))[0], 431);
  await raw.closed();
});

test('a body of a terabyte by its Content-Length: 413 long before its end', async () => {
  const raw = await Raw.open(halley.apiPort);
  raw.send('POST /v1/events HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n'
    + 'Content-Length: 999999999999\r\n\r\n');
  await raw.pour(64, () => 'x'.repeat(65_536));
  assertError((await raw.answers(1))[0], 413);
  await assertUndisturbed();
  raw.close();
});

test('a chunked body that grows too large: 413', async () => {
  const raw = await Raw.open(halley.apiPort);
  raw.send('POST /v1/events HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n'
    + 'Transfer-Encoding: chunked\r\n\r\n');
  const chunk = `10000\r\n${'x'.repeat(65_536)}\r\n`;
  await raw.pour(64, () => chunk);
  assertError((await raw.answers(1))[0], 413);
  await assertUndisturbed();
  raw.close();
});

test('an unknown path 404 and a wrong method 405 keep the connection', async () => {
  const raw = await Raw.open(halley.apiPort);
  raw.send('GET /nothing HTTP/1.1\r\nHost: h\r\n\r\n');
  assertError((await raw.answers(1))[0], 404);
  raw.send('PATCH /v1/events HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n');
  assertError((await raw.answers(2))[1], 405);
  raw.send(ok);
  assert.equal((await raw.answers(3))[2].status, 200);
  raw.close();
});

test('a wrong method on a stream: 405, Allow names GET', async () => {
  const answer = await exchange(halley.publicPort,
    'DELETE /v1/stream?user=a HTTP/1.1\r\nHost: h\r\n\r\n');
  assertError(answer, 405);
  assert.match(answer.headers.allow, /GET/);
});

test('bad escapes in a path: 400 or 404, never a crash', async () => {
  for (const path of ['/v1/users/%', '/v1/users/%zz', '/v1/users/%ff', '/v1/users/%00/%2e%2e']) {
    const answer = await exchange(halley.apiPort, `GET ${path} HTTP/1.1\r\nHost: h\r\n\r\n`);
    assert.ok([400, 404].includes(answer.status), `${path}: ${answer.status}`);
    assertError(answer, answer.status);
  }
  await assertUndisturbed();
});

test('a client that leaves in the middle of a body disturbs nobody', async () => {
  for (let n = 0; n < 50; n += 1) {
    const raw = await Raw.open(halley.apiPort);
    raw.send('POST /v1/follows HTTP/1.1\r\nHost: h\r\nContent-Type: text/plain\r\n'
      + 'Content-Length: 100000\r\n\r\na b\n');
    raw.close();
  }
  await assertUndisturbed();
});

test('a client that writes into its stream is not obeyed and not crashed by', async () => {
  const raw = await Raw.open(halley.publicPort);
  raw.send('GET /v1/stream?user=chatty HTTP/1.1\r\nHost: h\r\n\r\n');
  await raw.text(': welcome');
  raw.send(ok, 'x'.repeat(10_000));
  await assertUndisturbed();
  raw.close();
});
