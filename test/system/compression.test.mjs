// permessage-deflate (RFC 7692, protocol/http.md 8.5 and 9.8 to 9.11) with the `ws` library and,
// where no library would do it, by bytes.

import assert from 'node:assert/strict';
import { after, before } from 'node:test';
import { deflateRawSync } from 'node:zlib';
import { follow, publish, sessionsOf } from '../lib/client.mjs';
import { assertEvent } from '../lib/expect.mjs';
import { start, test } from '../lib/halley.mjs';
import { metric } from '../lib/metrics.mjs';
import { closeStreams, ws } from '../lib/streams.mjs';
import { until } from '../lib/wait.mjs';

let halley;
before(async () => { halley = await start(); });
after(async () => {
  closeStreams();
  await halley?.stop();
});

/** All that is sent is compressed, however short. */
const COMPRESSES = { perMessageDeflate: { threshold: 0 } };
/** A text of words, as many bytes as that. */
const words = (bytes) => 'goal scored by the home team in the last minute of the match, '
  .repeat(Math.ceil(bytes / 60)).slice(0, bytes);

test('a client that compresses gets the same events for fewer bytes', async () => {
  const small = await ws(halley, 'ann', COMPRESSES);
  const large = await ws(halley, 'bob');
  assert.equal(small.socket.extensions, 'permessage-deflate');
  assert.equal(large.socket.extensions, '');
  await follow(halley, ['ann', 'news'], ['bob', 'news']);
  const before = [small, large].map((stream) => stream.socket._socket.bytesRead);
  for (const data of [words(2_000), { n: 1 }, 'Žluťoučký 🐎'.repeat(100)]) {
    await publish(halley, 'news', data);
    for (const stream of [small, large]) assertEvent(await stream.event(), 'news', data);
  }
  const [few, many] = [small, large].map((stream, n) =>
    stream.socket._socket.bytesRead - before[n]);
  assert.ok(few < many / 4, `${few} bytes instead of ${many}`);
  await until('two of them were compressed', async () =>
    await metric(halley, 'halley_edge_deflated_events_total') === 2);
  assert.equal(await metric(halley, 'halley_edge_deflate_websockets_total'), 1);
  small.close();
  large.close();
});

test('operations may be compressed, and what was missed is', async () => {
  const stream = await ws(halley, 'cal', COMPRESSES);
  await stream.place();
  const data = words(3_000);
  stream.socket.send(JSON.stringify({ op: 'publish', subject: 'cal', data, ref: 1 }));
  const answer = await until('the answer', async () =>
    stream.comments.next('a message').then((said) => (said.ref === 1 ? said : null)));
  assert.deepEqual(Object.keys(answer.ok), ['id']);
  assertEvent(await stream.event(), 'cal', data);
  const { cursor } = stream;
  stream.close();
  await until('it has left', async () => await sessionsOf(halley, 'cal') === 0);
  for (const n of [1, 2, 3]) await publish(halley, 'cal', [n, data]);
  const again = await ws(halley, 'cal', COMPRESSES, cursor);
  for (const n of [1, 2, 3]) assertEvent(await again.event(), 'cal', [n, data]);
  await until('these were compressed, the first one, and two of the test before', async () =>
    await metric(halley, 'halley_edge_deflated_events_total') === 6);
  await until('the operation was counted', async () =>
    await metric(halley, 'halley_edge_inflated_messages_total') === 1);
  again.close();
});

test('a client with a small window, and one whose window is too small', async () => {
  const narrow = await ws(halley, 'dee',
    { perMessageDeflate: { serverMaxWindowBits: 10, clientMaxWindowBits: 9 } });
  assert.equal(narrow.socket.extensions, 'permessage-deflate');
  for (const bytes of [250, 2_000]) {
    await publish(halley, 'dee', words(bytes));
    assertEvent(await narrow.event(), 'dee', words(bytes));
  }
  const none = await ws(halley, 'eve', { perMessageDeflate: { serverMaxWindowBits: 8 } });
  assert.equal(none.socket.extensions, '');
  await publish(halley, 'eve', words(2_000));
  assertEvent(await none.event(), 'eve', words(2_000));
  narrow.close();
  none.close();
});

/** Sends a message that says it is compressed, past the library. */
function sendCompressed(stream, payload) {
  const head = Buffer.alloc(14);
  head[0] = 0xc1;
  head[1] = 0x80 | 127;
  head.writeBigUInt64BE(BigInt(payload.length), 2);
  stream.socket._socket.write(payload.length > 65_535 ? Buffer.concat([head, payload])
    : Buffer.concat([Buffer.from([0xc1, 0x80 | 126, payload.length >> 8, payload.length & 255,
      0, 0, 0, 0]), payload]));
}

test('fifty megabytes in fifty kilobytes: closed with 1009, nothing else happens', async () => {
  const bystander = await ws(halley, 'gil', COMPRESSES);
  for (let n = 0; n < 20; n += 1) {
    const stream = await ws(halley, 'fay', COMPRESSES);
    sendCompressed(stream, deflateRawSync(Buffer.alloc(50_000_000)));
    assert.equal((await stream.ended()).code, 1009);
  }
  await publish(halley, 'gil', words(500));
  assertEvent(await bystander.event(), 'gil', words(500));
  // Each is made as far as a message may go, and the edge says so a while later.
  const made = await until('all are counted', async () => {
    const bytes = await metric(halley, 'halley_edge_inflated_to_bytes_total');
    return bytes >= 20 * 65_536 && bytes;
  });
  assert.ok(made < 20 * 65_537 + 100_000, `${made} bytes were made of them`);
  bystander.close();
});

test('data that is not compressed though it says so: closed with 1007', async () => {
  const stream = await ws(halley, 'hal', COMPRESSES);
  sendCompressed(stream, Buffer.from(words(300)));
  assert.equal((await stream.ended()).code, 1007);
});

test('public.websocket_compression = off', async () => {
  const plain = await start({ settings: { HALLEY_PUBLIC_WEBSOCKET_COMPRESSION: 'off' } });
  try {
    const stream = await ws(plain, 'ida', COMPRESSES);
    assert.equal(stream.socket.extensions, '');
    await publish(plain, 'ida', words(2_000));
    assertEvent(await stream.event(), 'ida', words(2_000));
    stream.close();
  } finally {
    await plain.stop();
  }
});
