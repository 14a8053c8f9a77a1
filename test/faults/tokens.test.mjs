// Lies for the verdict about sessions that end with their tokens.

import assert from 'node:assert/strict';
import test from 'node:test';
import { FrameReader, NdjsonReader, SseReader, valueOf } from './lib/bytes.mjs';
import { History } from './lib/history.mjs';
import { judge } from './lib/verdict.mjs';

const END = { reason: 'token_expired' };

/** ann's token has this long to go when `why` ends her connection, or an event comes. */
function judged(leftMs, { why, gets = false }) {
  const history = new History({ policy: 'disconnect' });
  const about = { conn: 1, transport: 'sse' };
  history.note('ann', 'connect', { ...about, keep: 'none', expMs: Date.now() + leftMs });
  history.note('ann', 'open', about);
  if (gets) {
    const event = history.publishBegun('e1', 'ann', 1, 'disk');
    history.note('ann', 'event', { ...about, id: 'e1', subject: 'ann', n: 1, whole: true,
      at: event.begunMs });
    history.publishAcked(event);
  }
  if (why) history.note('ann', 'close', { ...about, by: 'server', why });
  const { violations, tally } = judge(history);
  return [violations.map(({ kind }) => kind), tally.expired];
}

test('a session ends when its token has expired, and not before', () => {
  assert.deepEqual(judged(-500, { why: 'end: token_expired' }), [[], 1]);
  assert.deepEqual(judged(5_000, { why: 'end: token_expired' }), [['dropped'], 0]);
  assert.deepEqual(judged(-500, { why: 'end' }), [['dropped'], 0]);
  assert.deepEqual(judged(-500, { why: 'end: closed' }), [['dropped'], 0]);
  assert.deepEqual(judged(undefined, { why: 'end: token_expired' }), [['dropped'], 0]);
});

test('what a session gets long after that is found', () => {
  assert.deepEqual(judged(-60_000, { gets: true }), [['outlived'], 0]);
  assert.deepEqual(judged(-2_000, { gets: true }), [[], 0]);
  assert.deepEqual(judged(undefined, { gets: true }), [[], 0]);
});

test('the end is read on each transport, with its cursor', () => {
  const text = JSON.stringify({ end: END });
  const stream = new SseReader().feed(Buffer.from(`event: end\nid: c1\ndata: ${text}\n\n`));
  assert.deepEqual(stream, [{ end: END, cursor: 'c1' }]);
  const [wrong] = new SseReader().feed(Buffer.from(`data: ${text}\n\n`));
  assert.ok(wrong.garbled);
  const line = JSON.stringify({ cursor: 'c1', end: END });
  assert.deepEqual(new NdjsonReader().feed(Buffer.from(`${line}\n`)), [{ end: END, cursor: 'c1' }]);
  const frame = Buffer.concat([Buffer.from([0x81, line.length]), Buffer.from(line)]);
  const [{ payload }] = new FrameReader().feed(frame);
  assert.deepEqual(valueOf(payload.toString()), { end: END, cursor: 'c1' });
});
