// RFC 6455 by an independent library (`ws`) and, where no library would do it, by bytes.

import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { after, before } from 'node:test';
import { publish, sessionsOf } from '../lib/client.mjs';
import { assertError, assertEvent } from '../lib/expect.mjs';
import { start, test } from '../lib/halley.mjs';
import { exchange, Raw } from '../lib/raw.mjs';
import { closeStreams, ws } from '../lib/streams.mjs';
import { until, within } from '../lib/wait.mjs';

let halley;
before(async () => { halley = await start(); });
after(async () => {
  closeStreams();
  await halley?.stop();
});

const OPCODE = { continuation: 0, text: 1, binary: 2, close: 8, ping: 9, pong: 10 };

/** A client's frame (RFC 6455 5.2), masked unless told otherwise. */
function frame(opcode, payload = '', { fin = true, masked = true, reserved = 0 } = {}) {
  const body = Buffer.from(payload);
  const head = [(fin ? 0x80 : 0) | (reserved << 4) | opcode];
  const bit = masked ? 0x80 : 0;
  if (body.length < 126) head.push(bit | body.length);
  else if (body.length < 65_536) head.push(bit | 126, body.length >> 8, body.length & 255);
  else {
    const length = Buffer.alloc(8);
    length.writeBigUInt64BE(BigInt(body.length));
    head.push(bit | 127, ...length);
  }
  if (!masked) return Buffer.concat([Buffer.from(head), body]);
  const mask = randomBytes(4);
  return Buffer.concat([Buffer.from(head), mask, body.map((byte, n) => byte ^ mask[n % 4])]);
}

/** Opens a WebSocket by hand; gives the raw connection, with what came after the handshake. */
async function handshake(user) {
  const raw = await Raw.open(halley.publicPort);
  const key = randomBytes(16).toString('base64');
  raw.send(`GET /v1/ws?user=${user} HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\n`
    + `Connection: keep-alive, Upgrade\r\nSec-WebSocket-Version: 13\r\n`
    + `Sec-WebSocket-Key: ${key}\r\n\r\n`);
  await raw.text('\r\n\r\n');
  const head = raw.bytes.toString('latin1');
  assert.match(head, /^HTTP\/1\.1 101 /);
  const accept = createHash('sha1').update(`${key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`);
  assert.ok(head.includes(accept.digest('base64')), 'RFC 6455 4.2.2: Sec-WebSocket-Accept');
  raw.frames = () => parseFrames(raw.bytes.subarray(raw.bytes.indexOf('\r\n\r\n') + 4));
  return raw;
}

/** The server's frames so far; all are unmasked (RFC 6455 5.1). */
function parseFrames(bytes) {
  const frames = [];
  let at = 0;
  while (bytes.length - at >= 2) {
    assert.equal(bytes[at + 1] & 0x80, 0, 'a server does not mask');
    let length = bytes[at + 1] & 0x7f;
    let head = 2;
    if (length === 126) {
      length = bytes.readUInt16BE(at + 2);
      head = 4;
    } else if (length === 127) {
      length = Number(bytes.readBigUInt64BE(at + 2));
      head = 10;
    }
    if (bytes.length - at < head + length) break;
    frames.push({ opcode: bytes[at] & 15, payload: bytes.subarray(at + head, at + head + length) });
    at += head + length;
  }
  return frames;
}

/** The server closes with `code` (RFC 6455 7.4.1) and then ends the connection. */
async function assertClosedWith(raw, code) {
  const close = await until('a close frame',
    () => raw.frames().find((found) => found.opcode === OPCODE.close));
  assert.equal(close.payload.readUInt16BE(0), code);
  raw.send(frame(OPCODE.close, close.payload.subarray(0, 2)));
  await raw.closed();
}

test('ping is answered by pong with the same data (5.5.3)', async () => {
  const stream = await ws(halley, 'ann');
  const pong = new Promise((resolve) => stream.socket.once('pong', resolve));
  stream.socket.ping('are you there?');
  assert.equal((await within('pong', pong)).toString(), 'are you there?');
  stream.close();
});

test('a pong nobody asked for is ignored (5.5.3)', async () => {
  const stream = await ws(halley, 'bea');
  stream.socket.pong('unasked');
  await until('the session is there', async () => await sessionsOf(halley, 'bea') === 1);
  await publish(halley, 'bea', 1);
  assertEvent(await stream.event(), 'bea', 1);
  stream.close();
});

test('a clean close: the code comes back, the session is gone (5.5.1)', async () => {
  const stream = await ws(halley, 'cal');
  stream.socket.close(1000, 'bye');
  assert.equal((await stream.ended()).code, 1000);
  await until('no session', async () => await sessionsOf(halley, 'cal') === 0);
});

test('a close without a code is answered (5.5.1)', async () => {
  const raw = await handshake('dee');
  raw.send(frame(OPCODE.close));
  await until('a close frame', () => raw.frames().some((found) => found.opcode === OPCODE.close));
  await raw.closed();
});

test('fragments with a ping in between (5.4)', async () => {
  const raw = await handshake('eli');
  raw.send(frame(OPCODE.text, '{"a":', { fin: false }), frame(OPCODE.ping, 'mid'),
    frame(OPCODE.continuation, '1', { fin: false }), frame(OPCODE.continuation, '}'));
  await until('the pong', () => raw.frames()
    .some((found) => found.opcode === OPCODE.pong && found.payload.toString() === 'mid'));
  assert.equal(raw.frames().some((found) => found.opcode === OPCODE.close), false);
  raw.close();
});

test('a character cut between fragments is good UTF-8 (8.1)', async () => {
  const raw = await handshake('flo');
  const horse = Buffer.from('🐎');
  raw.send(frame(OPCODE.text, horse.subarray(0, 2), { fin: false }),
    frame(OPCODE.continuation, horse.subarray(2)), frame(OPCODE.ping, 'alive'));
  await until('the pong', () => raw.frames().some((found) => found.opcode === OPCODE.pong));
  assert.equal(raw.frames().some((found) => found.opcode === OPCODE.close), false);
  raw.close();
});

test('a frame byte by byte', async () => {
  const raw = await handshake('gil');
  raw.socket.setNoDelay(true);
  for (const byte of frame(OPCODE.ping, 'slow')) {
    raw.send(Buffer.from([byte]));
    await new Promise((resolve) => setImmediate(resolve));
  }
  await until('the pong', () => raw.frames().some((found) => found.payload.toString() === 'slow'));
  raw.close();
});

const violations = [
  ['an unmasked frame (5.1)', 1002, [frame(OPCODE.text, 'x', { masked: false })]],
  ['a reserved bit (5.2)', 1002, [frame(OPCODE.text, 'x', { reserved: 4 })]],
  ['a reserved opcode (5.2)', 1002, [frame(3, 'x')]],
  ['a fragmented ping (5.5)', 1002, [frame(OPCODE.ping, 'x', { fin: false })]],
  ['a ping of 126 bytes (5.5)', 1002, [frame(OPCODE.ping, 'x'.repeat(126))]],
  ['a continuation of nothing (5.4)', 1002, [frame(OPCODE.continuation, 'x')]],
  ['a text inside a fragmented text (5.4)', 1002,
    [frame(OPCODE.text, 'x', { fin: false }), frame(OPCODE.text, 'y')]],
  ['a close with one byte (5.5.1)', 1002, [frame(OPCODE.close, 'x')]],
  ['a close with code 1005 (7.4.1)', 1002, [frame(OPCODE.close, Buffer.from([3, 237]))]],
  ['a close with code 999 (7.4.2)', 1002, [frame(OPCODE.close, Buffer.from([3, 231]))]],
  ['text that is no UTF-8 (8.1)', 1007, [frame(OPCODE.text, Buffer.from([0xc3, 0x28]))]],
  ['text that ends inside a character (8.1)', 1007, [frame(OPCODE.text, Buffer.from([0xc3]))]],
  ['a surrogate in text (8.1)', 1007, [frame(OPCODE.text, Buffer.from([0xed, 0xa0, 0x80]))]],
  ['a close reason that is no UTF-8 (8.1)', 1007,
    [frame(OPCODE.close, Buffer.from([3, 232, 0xff]))]],
];
for (const [what, code, frames] of violations) {
  test(`${what}: closed with ${code}`, async () => {
    const raw = await handshake('vic');
    raw.send(...frames);
    await assertClosedWith(raw, code);
  });
}

test('a message over the limit: closed with 1009 (7.4.1)', async () => {
  const raw = await handshake('max');
  raw.send(frame(OPCODE.text, 'x'.repeat(4_000_000)));
  await assertClosedWith(raw, 1009);
});

test('a length of 2^63 is refused at its head (5.2)', async () => {
  const raw = await handshake('len');
  raw.send(Buffer.from([0x81, 0xff, 0x80, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4]));
  const close = await until('a close frame',
    () => raw.frames().find((found) => found.opcode === OPCODE.close));
  assert.ok([1002, 1009].includes(close.payload.readUInt16BE(0)));
  raw.close();
});

test('endless fragments are bounded: 1009', async () => {
  const raw = await handshake('end');
  raw.send(frame(OPCODE.text, 'x', { fin: false }));
  await raw.pour(200, () => frame(OPCODE.continuation, 'x'.repeat(20_000), { fin: false }));
  const close = await until('a close frame',
    () => raw.frames().find((found) => found.opcode === OPCODE.close));
  assert.equal(close.payload.readUInt16BE(0), 1009);
  raw.close();
});

const upgrade = 'GET /v1/ws?user=a HTTP/1.1\r\nHost: h\r\n';
const badHandshakes = {
  'no Upgrade': [upgrade, [400, 426]],
  'no key (4.2.1)': [`${upgrade}Upgrade: websocket\r\nConnection: Upgrade\r\n`
    + 'Sec-WebSocket-Version: 13\r\n', [400]],
  'a key that is too short (4.2.1)': [`${upgrade}Upgrade: websocket\r\nConnection: Upgrade\r\n`
    + 'Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: abcd\r\n', [400]],
  'another version (4.4)': [`${upgrade}Upgrade: websocket\r\nConnection: Upgrade\r\n`
    + 'Sec-WebSocket-Version: 8\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n', [400, 426]],
};
for (const [what, [head, statuses]] of Object.entries(badHandshakes)) {
  test(`a handshake with ${what} is refused`, async () => {
    const answer = await exchange(halley.publicPort, `${head}\r\n`);
    assert.ok(statuses.includes(answer.status), `status ${answer.status}`);
    assertError(answer, answer.status);
    if (answer.status === 426) assert.equal(answer.headers['sec-websocket-version'], '13');
  });
}
