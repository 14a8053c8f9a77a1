// Lies for the verdict about hooks: each must be found, and the truth must pass.

import assert from 'node:assert/strict';
import test from 'node:test';
import { Hooked, Sessions } from './lib/hooked.mjs';

const CLOSED_AFTER_MS = 1_500;

/** A user that was there from 10 s to 20 s and from 30 s on. */
function sessions() {
  const all = new Sessions(CLOSED_AFTER_MS);
  all.here('p1', 10_000);
  all.away('p1', 20_000);
  all.here('p1', 30_000);
  return all;
}

let ids = 0;
const hook = (type, at, user = 'p1') => {
  ids += 1;
  return { id: `${ids}`, type, user, at };
};
const TRUTH = [['opened', 10_000], ['closed', 21_600], ['opened', 30_010]];

function judge(hooks) {
  const all = sessions();
  for (const [type, at] of hooks) all.hook(hook(type, at));
  return all;
}

test('what is so passes, and so does what comes again', () => {
  const all = judge(TRUTH);
  assert.deepEqual(all.wrong, []);
  assert.deepEqual(all.mistaken(['p1', 'p2'], (user) => user === 'p1'), []);
  const again = sessions();
  const hooks = TRUTH.map(([type, at]) => hook(type, at));
  for (const one of [hooks[0], hooks[0], hooks[1], hooks[0], hooks[1], hooks[2]]) again.hook(one);
  assert.deepEqual(again.wrong, []);
  assert.equal(again.count, 3);
});

test('what is lost, doubled or out of order is found', () => {
  for (const places of [[0, 2], [1, 2], [0, 0, 1], [0, 1, 1], [1, 0, 2]]) {
    const { wrong } = judge(places.map((place) => TRUTH[place]));
    assert.notEqual(wrong.length, 0, `${places}`);
  }
});

test('who was there a moment before has not closed', () => {
  for (const at of [15_000, 20_500, 32_000]) {
    const { wrong } = judge([['opened', 10_000], ['closed', at]]);
    assert.match(wrong[0], /was there for/, `${at}`);
  }
});

test('a checker that was held up allows for that, and for no more', () => {
  for (const [at, count] of [[20_900, 0], [20_300, 1]]) {
    const all = sessions();
    all.late(500);
    all.hook(hook('opened', 10_000));
    all.hook(hook('closed', at));
    assert.equal(all.wrong.length, count, `${at}`);
  }
});

test('in the end the last hook is what is so', () => {
  assert.deepEqual(judge(TRUTH.slice(0, 2)).mistaken(['p1'], () => true), ['p1']);
  assert.deepEqual(judge(TRUTH).mistaken(['p1'], () => false), ['p1']);
  assert.deepEqual(judge([]).mistaken(['p1'], () => true), ['p1']);
});

// ---- all hooks together ----

const published = (serial, user = 'h1') =>
  ({ type: 'published', user, event: { at: 1, data: { serial, number: serial % 2 } } });
const undelivered = (number) =>
  ({ type: 'undelivered', users: ['away-h1'], event: { at: 1, data: { number } } });
const occupied = { id: 'o', type: 'occupied', subject: 't1', at: 5 };
const vacated = { id: 'v', type: 'vacated', subject: 't1', at: 9 };
const GAP = { id: 'g', type: 'gap', reason: 'damaged', from: 1, to: 2 };

/** What four events, of which two are for a user that is away, and one subject owe. */
const ALL = [occupied, published(0), published(1), undelivered(0), published(2), published(3),
  undelivered(1)];

function tell(hooks, mayGap) {
  const hooked = new Hooked(CLOSED_AFTER_MS, mayGap);
  for (const one of hooks) hooked.take(one);
  const owed = hooked.owed([{ name: 'h1', acked: { about: 2, to: 2 } }], ['p1'], () => false,
    ['t1']);
  return { owed, wrong: hooked.wrong() };
}

test('all that is owed passes, with repetitions', () => {
  assert.deepEqual(tell(ALL), { owed: [], wrong: [] });
  assert.deepEqual(tell([...ALL.slice(0, 4), ...ALL.slice(1), ...ALL.slice(5)]),
    { owed: [], wrong: [] });
});

test('each hook of an event that is left out is missed', () => {
  for (const left of [1, 2, 3, 4, 5, 6]) {
    const { owed } = tell(ALL.filter((_, place) => place !== left));
    assert.match(owed[0], /of numbered events/, `${left}`);
  }
});

test('a hole, and an order that is not that of one user, are found', () => {
  const [o, a, b, c, d, e, f] = ALL;
  for (const hooks of [[o, a, c, d, e, b, f], [o, b, a, c, d, e, f], [o, a, b, f, c, d, e]]) {
    assert.match(tell(hooks).wrong[0], /before/);
  }
});

test('a subject that is in use was told so, and in turn', () => {
  assert.deepEqual(tell(ALL.slice(1)).owed, ['occupied of t1']);
  assert.deepEqual(tell([...ALL, vacated]).owed, ['occupied of t1']);
  assert.equal(tell([vacated, ...ALL]).wrong.length, 1);
  assert.equal(tell([...ALL, { ...occupied, id: 'o2' }]).wrong.length, 1);
});

test('a gap is a failure unless there is a cause for it', () => {
  assert.match(tell([...ALL, GAP]).wrong[0], /a gap/);
  assert.deepEqual(tell([...ALL, GAP], () => true), { owed: [], wrong: [] });
});
