// The checker's reading of bytes: whatever the packets, the same values.

import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'node:test';
import { FrameReader, HttpReader, NdjsonReader, SseReader, clientFrame } from './lib/bytes.mjs';
import { appendGarbage, cutTail, flipBit } from './lib/damage.mjs';
import { History } from './lib/history.mjs';

/** Feeds the bytes in pieces of every size and insists that the values are the same. */
function everyCut(make, text) {
  const bytes = Buffer.from(text, 'latin1');
  const read = (size) => {
    const reader = make();
    const found = [];
    for (let from = 0; from < bytes.length; from += size) {
      found.push(...reader.feed(bytes.subarray(from, from + size)));
    }
    return found;
  };
  const whole = read(bytes.length);
  for (let size = 1; size < bytes.length; size += 1) assert.deepEqual(read(size), whole);
  return whole;
}

/** An HTTP reader whose bodies are joined, as where a body is cut is up to the packets. */
const joined = () => {
  const reader = new HttpReader();
  return { feed: (bytes) => reader.feed(bytes).flatMap(({ head, body, end }) => {
    if (head) return [`head ${head.status}`];
    return end ? ['end'] : [...body.toString('latin1')];
  }) };
};

test('HTTP: chunks, a length, and the next answer on the same connection', () => {
  const found = everyCut(joined, 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n'
    + '5\r\nhello\r\n1\r\n!\r\n0\r\n\r\nHTTP/1.1 503 Busy\r\nContent-Length: 2\r\n\r\nno');
  assert.deepEqual(found, ['head 200', ...'hello!', 'end', 'head 503', ...'no', 'end']);
});

test('HTTP: what is no chunk is an error', () => {
  const reader = new HttpReader();
  assert.throws(() => reader.feed(Buffer.from(
    'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n')));
});

test('SSE: welcome, retry, events with and without id, gaps, heartbeats', () => {
  const found = everyCut(() => new SseReader(), ': welcome\nretry: 150\nid: c1\n\n'
    + 'id: c2\ndata: {"id":"a","subject":"s","at":1,"data":2}\n\n'
    + 'event: gap\nid: c3\ndata: {"gap":{"from":1,"to":2,"reason":"damaged"}}\n\n:\n\nid: c4\n\n');
  assert.deepEqual(found, [
    { welcome: true }, { retry: 150 }, { cursor: 'c1' },
    { event: { id: 'a', subject: 's', at: 1, data: 2 }, cursor: 'c2' },
    { gap: { from: 1, to: 2, reason: 'damaged' }, cursor: 'c3' },
    { cursor: 'c4' },
  ]);
});

test('SSE: an event under the name of a gap, a gap without it, half an event are garbled', () => {
  for (const text of ['event: gap\ndata: {"id":"a","subject":"s"}\n\n',
    'data: {"gap":{}}\n\n', 'data: {"id":\n\n', 'nonsense\n']) {
    assert.ok(everyCut(() => new SseReader(), text)[0].garbled, text);
  }
});

test('NDJSON: cursors, empty lines, events, gaps', () => {
  const found = everyCut(() => new NdjsonReader(), '{"cursor":"c1"}\n\n'
    + '{"cursor":"c2","id":"a","subject":"s","at":1,"data":null}\n'
    + '{"cursor":"c3","gap":{"from":null,"to":null,"reason":"malformed"}}\n{"x":1}\n');
  assert.deepEqual(found.slice(0, 4), [
    { welcome: true, cursor: 'c1' }, { welcome: true },
    { event: { id: 'a', subject: 's', at: 1, data: null }, cursor: 'c2' },
    { gap: { from: null, to: null, reason: 'malformed' }, cursor: 'c3' },
  ]);
  assert.ok(found[4].garbled);
});

test('WebSocket: frames of every length', () => {
  const frames = [1, 200, 70_000].map((length) => {
    const payload = Buffer.alloc(length, 'x');
    const head = Buffer.alloc(length < 126 ? 2 : length < 65_536 ? 4 : 10);
    head[0] = 0x81;
    if (length < 126) head[1] = length;
    else if (length < 65_536) head.writeUInt16BE(length, 2);
    else head.writeBigUInt64BE(BigInt(length), 2);
    if (length >= 126) head[1] = length < 65_536 ? 126 : 127;
    return Buffer.concat([head, payload]);
  });
  const bytes = Buffer.concat(frames);
  for (const size of [1, 7, 1_000, bytes.length]) {
    const reader = new FrameReader();
    const found = [];
    for (let from = 0; from < bytes.length; from += size) {
      found.push(...reader.feed(bytes.subarray(from, from + size)));
    }
    assert.deepEqual(found.map(({ payload }) => payload.length), [1, 200, 70_000]);
  }
  assert.equal(clientFrame(10, Buffer.from('ab')).toString('hex'), '8a82000000006162');
});

test('damage marks the records that it hits, and no others', () => {
  const folder = mkdtempSync(join(tmpdir(), 'halley-damage-'));
  const file = join(folder, '1.log');
  const fresh = () => {
    const history = new History({});
    const text = ['a', 'b', 'c'].map((id) => {
      history.publishBegun(id, 's', 1, 'disk');
      return `HEAD{"id":"${id}","subject":"s"}`;
    }).join('');
    writeFileSync(file, Buffer.concat([Buffer.from(text), Buffer.alloc(100)]));
    return { history, end: text.length };
  };
  const cut = fresh();
  assert.equal(cutTail(cut.history, file, 5), 1);
  assert.deepEqual([...cut.history.damage.keys()], ['c']);
  assert.equal(cut.history.cuts[0].from, cut.history.events.get('c').begun);
  assert.equal(readFileSync(file).length, cut.end - 5);

  const flip = fresh();
  const before = readFileSync(file);
  flipBit(flip.history, file, 0.5, 3);
  const after = readFileSync(file);
  assert.deepEqual([...flip.history.damage.keys()], ['b', 'c']);
  assert.equal(before.filter((byte, index) => byte !== after[index]).length, 1);

  const garbage = fresh();
  appendGarbage(file, Buffer.from('!!'));
  assert.equal(garbage.history.damage.size, 0);
  assert.equal(readFileSync(file).subarray(garbage.end).toString(), '!!');
  rmSync(folder, { recursive: true });
});
