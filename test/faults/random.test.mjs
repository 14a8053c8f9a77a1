// The worth of a failure's seed: the same choices again.

import assert from 'node:assert/strict';
import test from 'node:test';
import { Random } from './lib/random.mjs';

test('a seed decides everything', () => {
  const draw = (seed) => {
    const random = new Random(seed);
    const fork = random.fork('lane');
    return [random.int(1, 1000), fork.float(), random.sample([1, 2, 3, 4], 2), fork.chance(0.5)];
  };
  assert.deepEqual(draw(7), draw(7));
  assert.notDeepEqual(draw(7), draw(8));
});

test('choices stay within their bounds and reach them', () => {
  const random = new Random(1);
  const seen = new Set(Array.from({ length: 500 }, () => random.int(3, 6)));
  assert.deepEqual([...seen].sort(), [3, 4, 5, 6]);
  const weighted = Array.from({ length: 500 }, () =>
    random.weighted([{ name: 'often', weight: 9 }, { name: 'rarely', weight: 1 }]).name);
  const often = weighted.filter((name) => name === 'often').length;
  assert.ok(often > 400 && often < 500, `${often} of 500`);
});
