// The core alone: a fallback that was taken while the server was away gives its place back.

import assert from 'node:assert/strict';
import test from 'node:test';
import { S, make } from './lib/core.mjs';

/** Live by the second transport, as the first didn't open just now. */
function fallenBack(hasWorked) {
  const one = make();
  if (hasWorked) {
    one.live();
    one.pass(60 * S);
    one.core.lost({ code: 'closed' });
    one.wait();
  }
  one.core.lost({ code: 'closed', broken: true });
  one.wait();
  one.event('a', 'c1');
  assert.equal(one.core.transport, 1);
  one.take();
  return one;
}

function staysFallenBack(one, minutes) {
  for (let n = 0; n < minutes; n += 1) {
    one.pass(60 * S);
    one.event(`${n}`, 'c3');
  }
  assert.deepEqual([one.core.transport, one.take()], [1, []]);
}

test('what worked before is tried again after a minute, in place of a fallback, unnoticed', () => {
  const one = fallenBack(true);
  const { length } = one.states;
  one.pass(50 * S);
  one.event('b', 'c2');
  assert.deepEqual(one.take(), []);
  one.pass(11 * S);
  one.event('c', 'c3');
  assert.deepEqual(one.shown, ['a', 'b', 'c']);
  one.wait();
  assert.deepEqual(one.take(), [['drop'], ['open', 0, undefined, 'c3']]);
  one.live();
  assert.equal(one.states.length, length);
});

test('once: what doesn\'t open then is broken, and the fallback is kept', () => {
  const one = fallenBack(true);
  one.pass(61 * S);
  one.event('b', 'c2');
  one.wait();
  one.core.lost({ code: 'closed', broken: true });
  one.wait();
  one.live();
  one.take();
  staysFallenBack(one, 9);
});

test('a transport that never worked here is left alone while its fallback lives', () => {
  const one = fallenBack(false);
  staysFallenBack(one, 60);
});

test('what opens and then swallows everything is tried again once, not each minute', () => {
  const one = fallenBack(true);
  one.canProbe = true;
  one.pass(61 * S);
  one.event('b', 'c2');
  one.wait();
  // Twice it opens, and nothing comes, not even what was asked for.
  for (let stall = 0; stall < 2; stall += 1) {
    assert.equal(one.core.transport, 0);
    one.live();
    one.wait();
    one.wait();
    one.wait();
  }
  assert.equal(one.core.transport, 1);
  one.live();
  one.take();
  staysFallenBack(one, 9);
});
