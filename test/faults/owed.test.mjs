// The verdict about `undelivered`, `opened` and `closed` is given false hooks: it must find each,
// and must accept the true ones.

import assert from 'node:assert/strict';
import test from 'node:test';
import { Owed } from './lib/owed.mjs';

let ids = 0;
const undelivered = (event, ...users) => {
  ids += 1;
  return { id: `${ids}`, type: 'undelivered', users, event: { id: event } };
};
const change = (type, user, at) => {
  ids += 1;
  return { id: `${ids}`, type, user, at };
};

/** A session from its welcome until its client closes it; `null`: it stays. */
function session(owed, user, from, to, { cursorAt = null, isClosed = true } = {}) {
  const attempt = owed.attempt(user, from - 20, cursorAt);
  return Object.assign(attempt, { welcome: from, end: to, isClosed: isClosed && to !== null });
}

function event(owed, id, users, at, sessions = null) {
  const isAlone = users.length === 1;
  return Object.assign(owed.event(id, users, at, isAlone), { acked: at + 30, sessions });
}

/** `a` is there from 10 s to 20 s, and from 40 s on; `b` is never there; `c` is always. */
function story() {
  const owed = new Owed();
  session(owed, 'a', 10_000, 20_000);
  session(owed, 'a', 40_000, null);
  session(owed, 'c', 5_000, null);
  event(owed, 'there', ['a'], 15_000, 1);
  event(owed, 'away', ['a'], 30_000, 0);
  event(owed, 'both', ['a', 'c'], 35_000, 1);
  event(owed, 'never', ['b'], 36_000, 0);
  event(owed, 'back', ['a', 'c'], 50_000, 2);
  return owed;
}

const TRUTH = [change('opened', 'c', 5_010), change('opened', 'a', 10_010),
  change('closed', 'a', 35_020), undelivered('away', 'a'), undelivered('both', 'a'),
  undelivered('never', 'b'), change('opened', 'a', 40_010)];

function tell(hooks, owed = story()) {
  for (const hook of hooks) owed.hook(hook);
  return { owed: owed.owed(), wrong: owed.wrong(), mistaken: owed.mistaken() };
}

const NOTHING = { owed: [], wrong: [], mistaken: [] };

test('what is so passes, and so does what comes again under its id', () => {
  assert.deepEqual(tell(TRUTH), NOTHING);
  assert.deepEqual(tell([...TRUTH.slice(0, 5), ...TRUTH.slice(2)]), NOTHING);
  assert.deepEqual(story().counts, { 'owed: must be told': 3, 'owed: must not': 4,
    'owed: nobody can tell': 0 });
});

test('each hook that is left out is missed', () => {
  for (const [left, hook] of TRUTH.entries()) {
    const { owed, wrong, mistaken } = tell(TRUTH.filter((_, place) => place !== left));
    assert.notDeepEqual({ owed, wrong, mistaken }, NOTHING, JSON.stringify(hook));
    if (hook.type === 'undelivered') {
      assert.match(owed[0], new RegExp(`^${hook.event.id} to ${hook.users[0]} is never told`));
    }
  }
});

test('each one that is false is found', () => {
  for (const [hook, why] of [
    [undelivered('there', 'a'), /to a, who had it/],
    [undelivered('both', 'c'), /to c, who had it/],
    [undelivered('back', 'a'), /to a, who had it/],
    [undelivered('there', 'b'), /is no event of this user/],
    [undelivered('other', 'a'), /is no event of this user/],
    [change('opened', 'a', 60_000), /as opened twice/],
    [change('closed', 'b', 60_000), /as closed twice/],
    [change('opened', 'b', 60_000), /did not come/],
  ]) {
    const { wrong } = tell([...TRUTH, hook]);
    assert.match(wrong[0] ?? '', why, JSON.stringify(hook));
  }
});

test('whoever closed once more than there was an end is found', () => {
  const owed = new Owed();
  session(owed, 'a', 10_000, 20_000);
  const { wrong } = tell([change('opened', 'a', 10_010), change('closed', 'a', 25_000),
    change('opened', 'a', 60_000), change('closed', 'a', 66_000)], owed);
  assert.match(wrong[0], /did not come since 25000/);
});

test('an event under two ids is one too many, but where that may be', () => {
  const twice = [...TRUTH, undelivered('away', 'a')];
  assert.match(tell(twice).wrong[0], /told as undelivered 2 times/);
  const owed = new Owed({ mayRepeat: true });
  session(owed, 'a', 1_000, 2_000);
  event(owed, 'away', ['a'], 30_000, 0);
  assert.deepEqual(tell([change('opened', 'a', 1_000), change('closed', 'a', 8_000),
    undelivered('away', 'a'), undelivered('away', 'a')], owed), NOTHING);
});

/** What `a` is owed of an event at 30 s that found nobody, with these sessions around it. */
function decided(sessions, { disturbed = [], found = 0, users = ['a'], atMs = 30_000 } = {}) {
  const owed = new Owed();
  for (const [from, to, more] of sessions) session(owed, 'a', from, to, more);
  for (const [begin, end, kills] of disturbed) {
    Object.assign(owed.disturb(begin, kills), { end });
  }
  return owed.decide('a', event(owed, 'e', users, atMs, found));
}

const CURSOR = { cursorAt: 20_000 };

test('a cursor in time has it, one that is late has not, and nobody can tell in between', () => {
  for (const [sessions, expected] of [
    [[[10_000, 20_000]], 'must'],
    [[[10_000, 20_000], [30_500, null]], 'must'],
    [[[10_000, 20_000], [30_500, null, CURSOR]], 'mustNot'],
    [[[10_000, 20_000], [30_500, 30_600, CURSOR]], 'mustNot'],
    [[[10_000, 20_000], [31_900, null, CURSOR]], undefined],
    [[[10_000, 20_000], [32_100, null, CURSOR]], undefined],
    [[[10_000, 20_000], [33_000, null, CURSOR]], 'must'],
    [[[10_000, 20_000], [30_200, 30_300], [30_500, null, { cursorAt: 30_250 }]], undefined],
  ]) assert.equal(decided(sessions), expected, JSON.stringify(sessions));
});

test('whoever came or went around the publish may have had it, unless nobody was found', () => {
  for (const [sessions, found, expected] of [
    [[[10_000, 29_500]], null, undefined],
    [[[10_000, 29_500]], 0, 'must'],
    [[[30_010, null]], null, undefined],
    [[[30_010, null]], 0, 'must'],
    [[[10_000, 30_010]], null, undefined],
    [[[10_000, 20_000]], null, 'must'],
    [[[10_000, 30_200, { isClosed: false }]], 1, undefined],
    [[[10_000, 30_900, { isClosed: false }]], 1, 'mustNot'],
  ]) assert.equal(decided(sessions, { found }), expected, JSON.stringify([sessions, found]));
});

test('a disturbance leaves open what a late cursor or a sync may say, and nothing else', () => {
  const cut = { disturbed: [[29_000, 29_500]] };
  for (const [sessions, expected] of [
    [[[10_000, 20_000]], 'must'],
    [[[10_000, 20_000], [35_000, null]], 'must'],
    [[[10_000, 20_000], [35_000, null, CURSOR]], undefined],
    [[[10_000, 20_000], [45_000, null, CURSOR]], 'must'],
    [[[10_000, 29_200], [35_000, null]], undefined],
    [[[10_000, null]], 'mustNot'],
  ]) assert.equal(decided(sessions, cut), expected, JSON.stringify(sessions));
});

test('the moment before a kill leaves open whether a user had it, and that alone', () => {
  const killed = (begin) => [[begin, begin + 2_000, true]];
  const there = [[10_000, null]];
  for (const [sessions, disturbed, more, expected] of [
    [there, killed(30_500), { found: 2, users: ['a', 'b'] }, undefined],
    [there, killed(30_500), { found: 1 }, 'mustNot'],
    [there, killed(32_000), { found: 2, users: ['a', 'b'] }, 'mustNot'],
    [there, killed(25_000), { found: 2, users: ['a', 'b'] }, 'mustNot'],
    [[[10_000, 20_000]], killed(30_500), { found: 0 }, 'must'],
    [[[10_000, 20_000], [30_400, 30_500, CURSOR]], killed(30_600), { found: 0 }, undefined],
  ]) {
    assert.equal(decided(sessions, { disturbed, ...more }), expected,
      JSON.stringify([sessions, disturbed, more]));
  }
});

test('a gap says that something is missing, in its time and not in another', () => {
  const without = TRUTH.filter(({ event: of }) => of?.id !== 'away');
  const gap = (from, to) => ({ id: `gap ${from}`, type: 'gap', reason: 'too_old', from, to });
  assert.deepEqual(tell([...without, gap(29_000, 31_000)]), NOTHING);
  assert.match(tell([...without, gap(31_000, 60_000)]).owed[0], /^away to a/);
});

test('what was not acknowledged is owed to nobody, and may be told', () => {
  const owed = new Owed();
  owed.event('e', ['a'], 30_000);
  assert.deepEqual(tell([undelivered('e', 'a')], owed), NOTHING);
  assert.deepEqual(tell([], owed), NOTHING);
});
