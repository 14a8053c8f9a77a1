// Lies for the verdict about halls and the states of their users: each must be found, and the truth
// must pass.

import assert from 'node:assert/strict';
import test from 'node:test';
import { Seen } from './lib/seen.mjs';

const LEAVE_MS = 1_500;
const HALL = 'hall/0';
const told = (more) => ({ subject: HALL, ...more });
const state = (users, states, online = users.length) => told({ online, users, states });
const join = (user, data) => told({ user, state: 'join', ...data && { data } });
const leave = (user) => told({ user, state: 'leave' });
const update = (user, n) => told({ user, state: 'update', data: n === null ? null : { n } });

/** bob is there from 0 s on, and ann from 0 s to 10 s, saying 1. */
function before(manyOf = []) {
  const seen = new Seen(LEAVE_MS, manyOf);
  for (const n of [1, 2, 3]) seen.saying('ann', { n });
  seen.here(HALL, 'bob', 1, 0);
  seen.here(HALL, 'ann', 2, 0);
  seen.said('ann', 2, { n: 1 }, 100);
  seen.away(HALL, 'ann', 2, 10_000);
  return seen;
}

/** Then ann is there from 20 s on, and says 2. */
function story(manyOf = []) {
  const seen = before(manyOf);
  seen.here(HALL, 'ann', 3, 20_000);
  seen.said('ann', 3, { n: 2 }, 20_100);
  seen.watches('eve');
  return seen;
}

/** What eve is told, each `[message, at]`; all but the first state. */
function tell(messages, seen = story()) {
  seen.take('eve', state(['bob'], {}), 0);
  for (const [message, at] of messages) seen.take('eve', message, at);
  return seen;
}

const TRUTH = [[join('ann'), 10], [update('ann', 1), 110], [leave('ann'), 11_600],
  [join('ann', { n: 2 }), 20_050]];
const wrongs = (seen) => seen.wrong.length;
const mistaken = (seen) => seen.mistaken(['eve'], [HALL]).length;

test('what is so passes, and each kind is counted', () => {
  const seen = tell(TRUTH);
  assert.deepEqual([seen.wrong, mistaken(seen)], [[], 0]);
  assert.deepEqual(seen.count,
    { states: 1, counted: 0, joins: 2, leaves: 1, updates: 1, numbers: 0 });
});

test('each of them that is left out in the end leaves a watcher mistaken', () => {
  assert.equal(mistaken(tell(TRUTH.slice(0, 3))), 1);
  assert.equal(mistaken(tell([[join('ann', { n: 1 }), 0]])), 1);
  assert.equal(mistaken(tell([[join('ann'), 0]])), 1);
  assert.equal(mistaken(tell([...TRUTH, [update('ann', 3), 0]])), 1);
  const again = tell(TRUTH);
  again.watches('eve');
  assert.equal(mistaken(again), 1);
});

test('a change before the state is found', () => {
  for (const message of [join('ann'), update('ann', 1), told({ online: 3 })]) {
    const seen = story();
    seen.take('eve', message, 0);
    assert.match(seen.wrong[0], /first/);
  }
});

test('who was not away for long enough has not left, by a change or a state', () => {
  for (const gone of [leave('ann'), state(['bob'])]) {
    const told = (at, seen) => wrongs(tell([...TRUTH.slice(0, 2), [gone, at]], seen));
    assert.deepEqual([told(11_400, before()), told(11_600, before())], [1, 0]);
    // She is back for long, whatever her last absence was.
    assert.deepEqual([told(26_000, story()), told(21_000, story())], [1, 0]);
  }
});

test('with a second session somebody is still there', () => {
  const seen = new Seen(LEAVE_MS, ['ann']);
  seen.here(HALL, 'ann', 1, 0);
  seen.here(HALL, 'ann', 2, 0);
  seen.away(HALL, 'ann', 1, 1_000);
  seen.take('eve', state(['ann']), 0);
  seen.take('eve', leave('ann'), 9_000);
  assert.equal(wrongs(seen), 1);
});

test('a state that was never said, and one from before, are found', () => {
  assert.match(tell([[join('ann', { n: 9 }), 0]]).wrong[0], /never said/);
  assert.match(tell([[state(['ann'], { ann: { n: 9 } }), 0]]).wrong[0], /never said/);
  const back = [[join('ann', { n: 2 }), 0], [update('ann', 1), 0]];
  assert.match(tell(back).wrong[0], /after 2/);
  assert.equal(wrongs(tell(back, story(['ann']))), 0);
  // Also over a connection that breaks.
  const seen = tell([[join('ann', { n: 2 }), 0]]);
  seen.watches('eve');
  seen.take('eve', state(['ann'], { ann: { n: 1 } }), 0);
  assert.match(seen.wrong[0], /after 2/);
});

test('that she says nothing is wrong while she says something for long', () => {
  const seen = (message, at) => wrongs(tell([...TRUTH, [message, at]]));
  for (const message of [update('ann', null), state(['ann', 'bob'])]) {
    assert.deepEqual([seen(message, 20_200), seen(message, 26_000)], [0, 1]);
  }
  const ended = story();
  ended.said('ann', 3, null, 21_000);
  assert.equal(wrongs(tell([...TRUTH, [update('ann', null), 40_000]], ended)), 0);
});

test('of several sessions the last that was said counts, and ends with its session', () => {
  const seen = story(['ann']);
  seen.here(HALL, 'ann', 4, 30_000);
  seen.said('ann', 4, { n: 3 }, 30_000);
  assert.deepEqual(seen.so(HALL).states, { ann: { n: 3 } });
  seen.said('ann', 3, { n: 2 }, 31_000);
  assert.deepEqual(seen.so(HALL).states, { ann: { n: 2 } });
  seen.away(HALL, 'ann', 3, 32_000);
  assert.deepEqual(seen.so(HALL).states, { ann: { n: 3 } });
});

test('visitors are counted, and a full hall is its number alone', () => {
  const visited = () => {
    const seen = story();
    seen.here(HALL, null, 7, 0);
    return seen;
  };
  assert.equal(mistaken(tell(TRUTH, visited())), 1);
  assert.equal(mistaken(tell([...TRUTH, [told({ online: 3 }), 0]], visited())), 0);
  const full = (online) => tell([[told({ online, users: null }), 0]], visited());
  assert.deepEqual([mistaken(full(3)), mistaken(full(4)), wrongs(full(3))], [0, 1, 0]);
  const named = full(3);
  named.take('eve', join('ann'), 0);
  assert.match(named.wrong[0], /are counted/);
});

test('a checker that was held up allows for that', () => {
  const late = story();
  late.lateMs = 400;
  assert.equal(wrongs(tell([[join('ann'), 0], [leave('ann'), 11_200]], late)), 0);
});
