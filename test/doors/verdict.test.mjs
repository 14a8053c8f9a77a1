// The verdict of `make doors`, fed with cases that are as wanted and with ones that aren't.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { judge } from './lib/verdict.mjs';

const known = [{ got: 'taken 1', reason: 'a method is any token', cases: ['odd'] }];
const odd = { name: 'odd', want: 'refused', got: 'taken 1' };

test('a case that is as wanted passes, by whichever status it is refused', () => {
  const cases = [{ name: 'a', want: 'taken 2', got: 'taken 2' },
    { name: 'b', want: 'refused', got: 'refused 400 bad_host' },
    { name: 'c', want: 'invalid', got: 'invalid: 401 token_signature' },
    { name: 'd', got: 'refused: 400 bad_json' }, odd];
  assert.deepEqual(judge(cases, known), { total: 5, passed: 3, choices: 1, wrong: [],
    known: [{ ...odd, reason: 'a method is any token' }] });
});

test('what differs without a reason is wrong, and what differs in another way', () => {
  assert.equal(judge([{ name: 'a', want: 'taken 2', got: 'taken 1' }], []).wrong.length, 1);
  assert.equal(judge([{ name: 'a', want: 'taken 1', got: 'refused 400 x' }], []).wrong.length, 1);
  assert.equal(judge([{ ...odd, want: 'taken 2', got: 'taken 3' }], known).wrong.length, 1);
  assert.equal(judge([odd], []).wrong.length, 1);
});

test('a known difference that is gone is wrong, and so is a suite without a case', () => {
  assert.equal(judge([{ ...odd, got: 'refused 501 x' }], known).wrong.length, 1);
  assert.equal(judge([], []).wrong.length, 1);
});
