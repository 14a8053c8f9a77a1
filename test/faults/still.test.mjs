// Lies for the verdict on directories that were damaged at rest.

import assert from 'node:assert/strict';
import test from 'node:test';
import { History } from './lib/history.mjs';
import { judgePages, judgeReader } from './lib/still_verdict.mjs';

const DAY = 86_400_000;
const ALWAYS = { from: null, to: null, reason: 'damaged' };
const NEVER = { from: 1, to: 2, reason: 'damaged' };

/** ann follows dora and news; dora follows news, and is deleted between e3 and e4. */
function story() {
  const history = new History({});
  for (const pair of [['ann', 'dora'], ['ann', 'news'], ['dora', 'news']]) {
    history.followAcked(history.followBegun('follow', ...pair));
  }
  history.privates.set('alone', new Set(['dora']));
  const publish = (id, subject, ack = 'disk') =>
    history.publishAcked(history.publishBegun(id, subject, 1, ack));
  publish('e1', 'dora');
  publish('e2', 'alone');
  publish('e3', 'news');
  history.deathAcked(history.deathBegun('dora'));
  publish('e4', 'dora');
  publish('e5', 'news');
  publish('e6', 'news', 'memory');
  return history;
}

const reader = (user, ids, gaps = []) => {
  const { found, told } = judgeReader(story(), user, { since: 0, came: new Set(ids), gaps });
  return [found.length, told];
};

const pages = (ids, gaps = []) => {
  const { found, told } = judgePages(story(), 'dora', { came: new Set(ids), gaps });
  return [found.length, told];
};

test('who comes back has what it is owed, or a gap says what it lacks', () => {
  assert.deepEqual(reader('ann', ['e3', 'e5']), [0, false]);
  assert.deepEqual(reader('ann', ['e3', 'e5', 'e6']), [0, false]);
  assert.deepEqual(reader('ann', ['e5']), [1, false]);
  assert.deepEqual(reader('ann', [], [ALWAYS]), [0, true]);
  assert.deepEqual(reader('ann', ['e5'], [NEVER]), [1, false]);
  // She doesn't follow who is somebody new.
  assert.deepEqual(reader('ann', ['e3', 'e4', 'e5']), [1, false]);
});

test('what was about a deleted user comes back to nobody without a gap', () => {
  assert.deepEqual(reader('ann', ['e1', 'e3', 'e5']), [1, false]);
  assert.deepEqual(reader('ann', ['e1', 'e3', 'e5'], [NEVER]), [1, false]);
  assert.deepEqual(reader('ann', ['e1', 'e3', 'e5'], [ALWAYS]), [0, true]);
});

test('nothing from before comes back to the deleted user itself without a gap', () => {
  assert.deepEqual(reader('dora', ['e4']), [0, false]);
  for (const id of ['e1', 'e2', 'e3']) {
    assert.deepEqual(reader('dora', [id, 'e4']), [1, false], id);
    assert.deepEqual(reader('dora', [id, 'e4'], [ALWAYS]), [0, true], id);
  }
  assert.deepEqual(reader('dora', []), [1, false]);
});

test('a gap has to be around the deletion, not around what it hid', () => {
  const history = story();
  const [death] = history.deaths.get('dora');
  death.begunMs += DAY;
  death.ackedMs += DAY;
  const came = new Set(['e1', 'e4']);
  const { begunMs } = history.events.get('e1');
  const judged = (from, to) => judgePages(history, 'dora', { came,
    gaps: [{ from, to, reason: 'damaged' }] }).found.length;
  assert.deepEqual([judged(begunMs - 1, begunMs + 1), judged(death.begunMs, null)], [1, 0]);
});

test('the pages of its past have what was published behind the deletion, and nothing else', () => {
  assert.deepEqual(pages(['e4']), [0, false]);
  assert.deepEqual(pages([]), [1, false]);
  assert.deepEqual(pages([], [ALWAYS]), [0, true]);
  assert.deepEqual(pages(['e1', 'e4']), [1, false]);
  assert.deepEqual(pages(['e1', 'e4'], [ALWAYS]), [0, true]);
  // In another history nothing is left, and nothing comes back.
  const anew = (...ids) => judgePages(story(), 'dora', { came: new Set(ids), gaps: [],
    anew: [ALWAYS] }).found.length;
  assert.deepEqual([anew(), anew('e1')], [0, 1]);
  assert.deepEqual(pages(['e4', 'e5']), [1, false]);
});
