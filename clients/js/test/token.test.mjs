// How long a token is good, by what it says of itself.

import assert from 'node:assert/strict';
import test from 'node:test';
import { claims, renewAfter } from '../dist/token.js';

const token = (text) => `e30.${Buffer.from(text).toString('base64url')}.x`;
const NOW = 1_800_000_000_000;

test('the time left is exp less now, whatever the clock shows', () => {
  assert.equal(renewAfter(token('{"exp":1800000060}'), NOW), 60_000);
  // This clock is an hour behind the server's: what the token lives is what it was made for.
  assert.equal(renewAfter(token('{"exp":1800003660,"iat":1800003600}'), NOW), 60_000);
  // This one is ahead.
  assert.equal(renewAfter(token('{"exp":1799990000}'), NOW), 60_000);
});

test('what isn\'t a JWT, or has no end, isn\'t renewed', () => {
  const never = [token('null'), token('{}'), token('{"exp":"1"}')];
  for (const text of ['', 'x', 'a.b.c', 'a.####.c', ...never]) {
    assert.equal(renewAfter(text, NOW), Infinity, text);
  }
});

test('claims tell users apart', () => {
  const sub = (name) => claims(token(JSON.stringify({ sub: name }))).sub;
  assert.equal(sub('ann'), 'ann');
  assert.equal(sub('kůň 🐎 ?>~'), sub('kůň 🐎 ?>~'));
  assert.notEqual(sub('kůň'), sub('kuň'));
});
