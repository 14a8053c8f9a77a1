// A checker that can't fail proves nothing: histories with one lie each, and the verdict on them.

import assert from 'node:assert/strict';
import test from 'node:test';
import { judgeList } from './lib/answers.mjs';
import { History } from './lib/history.mjs';
import { Story, kinds } from './lib/story.mjs';
import { timeline } from './lib/timeline.mjs';
import { judge } from './lib/verdict.mjs';

const story = (profile) => new Story(profile).begin();

test('all delivered, in order: no violation, and every pair was checked', () => {
  const { ok, tally } = story().publish('e1').gets('e1').publish('e2').gets('e2').verdict();
  assert.equal(ok, true);
  assert.equal(tally.checked, 2);
});

test('a lost event is found, the last one as well', () => {
  assert.deepEqual(kinds(story().publish('e1').publish('e2').gets('e2')), ['lost']);
  assert.deepEqual(kinds(story().publish('e1').gets('e1').publish('e2')), ['lost']);
});

test('an event about the user itself is owed without a follow', () => {
  assert.deepEqual(kinds(story().publish('e1', { subject: 'ann' })), ['lost']);
});

test('an event lost on a resume is found: the hole between replay and live', () => {
  const resumed = story().publish('e1').gets('e1').say('close', { by: 'client' })
    .publish('e2').begin(1).publish('e3').gets('e3');
  assert.deepEqual(kinds(resumed), ['lost']);
});

test('what came after the cursor of a resume has to come again', () => {
  const again = () => story().publish('e1').gets('e1').publish('e2').gets('e2').begin(1);
  assert.deepEqual(kinds(again()), ['lost']);
  const { ok, tally } = again().gets('e2').verdict();
  assert.equal(ok, true);
  assert.deepEqual(tally.duplicates, { afterResume: 0, afterRetry: 0, early: 0, answered: 0 });
});

test('reordered events are found, also where a resume repeats them', () => {
  const wrong = story().publish('e1').publish('e2').gets('e2').gets('e1');
  assert.deepEqual(kinds(wrong), ['reordered']);
  const replay = story().publish('e1').gets('e1').publish('e2').gets('e2').begin(0)
    .gets('e2').gets('e1');
  assert.deepEqual(kinds(replay), ['reordered']);
});

test('events that were published at the same time have no order', () => {
  const { history } = story();
  const both = ['e1', 'e2'].map((id) => history.publishBegun(id, 'news', Number(id[1]), 'disk'));
  for (const event of both) history.publishAcked(event);
  for (const id of ['e2', 'e1']) {
    history.note('ann', 'event', { conn: 2, id, subject: 'news', n: Number(id[1]), whole: true });
  }
  assert.equal(judge(history).ok, true);
});

test('a doubled event on one connection is found', () => {
  assert.deepEqual(kinds(story().publish('e1').gets('e1').gets('e1')), ['doubled']);
});

test('a copy is right after a resume, and where the outcome of a publish was unknown', () => {
  const resumed = story().publish('e1').gets('e1').begin(1).gets('e1').verdict();
  assert.deepEqual([resumed.ok, resumed.tally.duplicates.afterResume], [true, 1]);
  const retried = story().publish('e1', { unknown: 1 }).gets('e1').gets('e1').verdict();
  assert.deepEqual([retried.ok, retried.tally.duplicates.afterRetry], [true, 1]);
});

test('an event with other data, subject or number, or a stranger, is garbled', () => {
  for (const lie of [{ whole: false }, { subject: 'else' }, { n: 7 }]) {
    assert.ok(kinds(story().publish('e1').gets('e1', lie)).includes('garbled'));
  }
  assert.deepEqual(kinds(story().gets('e9')), ['garbled']);
});

test('an event after the unfollow, and one without any follow, is uninvited', () => {
  const left = story().follow('unfollow').publish('e1').gets('e1');
  assert.deepEqual(kinds(left), ['uninvited']);
  const never = new History({ policy: 'disconnect' });
  const alone = Object.assign(Object.create(Story.prototype), { history: never, conn: 1 });
  assert.deepEqual(kinds(alone.begin().publish('e1').gets('e1')), ['uninvited']);
});

test('an event from before the follow is uninvited, whatever the cursor', () => {
  const later = () => story().follow('unfollow').publish('e1').follow('follow').publish('e2');
  assert.deepEqual(kinds(later().gets('e2')), []);
  assert.deepEqual(kinds(later().begin(0).gets('e1').gets('e2')), ['uninvited']);
  for (const effects of [{ power: true }, { damages: true }]) {
    assert.deepEqual(kinds(later().fault(effects).begin(0).gets('e1').gets('e2')), []);
    const before = story().fault(effects).follow('unfollow').publish('e1').follow('follow');
    assert.deepEqual(kinds(before.begin(0).gets('e1')), ['uninvited']);
  }
  const cut = later();
  cut.history.tailCut(cut.history.events.get('e1').begun);
  assert.deepEqual(kinds(cut.begin(0).gets('e1').gets('e2')), []);
});

test('a follow or unfollow at the same time as the publish: either is right', () => {
  for (const op of ['follow', 'unfollow']) {
    for (const comes of [true, false]) {
      const race = story().follow(op === 'follow' ? 'unfollow' : 'follow');
      const operation = race.history.followBegun(op, 'ann', 'news');
      race.publish('e1');
      race.history.followAcked(operation);
      if (comes) race.gets('e1');
      assert.equal(race.verdict().ok, true, `${op}, comes: ${comes}`);
    }
  }
});

test('what was published before the unfollow is owed to who comes back after it', () => {
  const away = story().say('close', { by: 'client' }).publish('e1').follow('unfollow').begin(0);
  assert.deepEqual(kinds(away), ['lost']);
});

test('without a cursor nothing from before is owed, and nothing of it may come', () => {
  const fresh = () => story().publish('e1').gets('e1').publish('e2').begin('none');
  assert.equal(fresh().verdict().ok, true);
  assert.equal(fresh().verdict().tally.undecided, 1);
  assert.deepEqual(kinds(fresh().gets('e1')), ['stray']);
  const { ok, tally } = fresh().begin(0).gets('e2').verdict();
  assert.deepEqual([ok, tally.duplicates.early], [true, 1]);
});

test('a hole in a chain that was left is a loss all the same', () => {
  const left = story().publish('e1').publish('e2').gets('e2').begin('none');
  assert.deepEqual(kinds(left), ['lost']);
});

test('a silent hole is a loss; a gap that covers it in time is none, if it has a cause', () => {
  const hole = (more, profile) => {
    const told = new Story(profile).begin().publish('e1').publish('e2');
    const { begunMs } = told.history.events.get('e1');
    told.say('gap', { from: begunMs - 1, to: begunMs + 1, reason: 'too_old', ...more });
    return kinds(told.gets('e2'));
  };
  const short = { policy: 'disconnect', retentionMs: 0 };
  assert.deepEqual(hole({}, short), []);
  assert.deepEqual(hole({ from: null, to: null }, short), []);
  assert.deepEqual(hole({ from: 1, to: 2 }, short), ['lost']);
  assert.deepEqual(hole({}, { policy: 'disconnect' }), ['lost', 'unjust gap']);
  assert.deepEqual(hole({}, { policy: 'disconnect', retentionMs: 60_000 }), ['lost']);
  assert.deepEqual(hole({ reason: 'damaged' }, short), ['lost', 'unjust gap']);
  assert.deepEqual(hole({ reason: 'slow_consumer' }, short), ['lost', 'unjust gap']);
});

test('a gap that a client with a good cursor gets for a bad one is unjust', () => {
  assert.deepEqual(kinds(story().begin(0).say('gap', { from: null, to: null,
    reason: 'malformed' })), ['unjust gap']);
  assert.deepEqual(kinds(story().begin('bad').say('gap', { from: null, to: null,
    reason: 'malformed' })), []);
});

test('damage excuses the events whose records the checker damaged, no others', () => {
  const damaged = () => {
    const told = story().publish('e1').publish('e2').fault({ damages: true });
    told.history.damage.set('e1', 'the tail was cut');
    return told;
  };
  assert.deepEqual(kinds(damaged()), ['lost']);
  const { ok, tally } = damaged().gets('e2').verdict();
  assert.equal(ok, true);
  assert.deepEqual(tally.excused, { 'not told: the tail was cut': 1 });
  const both = damaged().say('gap', { from: null, to: null, reason: 'damaged' });
  assert.deepEqual(kinds(both), ['lost']);
});

test('ack: memory may die with the brain; ack: disk may not, and not without a kill', () => {
  const dies = (ack, effects) =>
    kinds(story().publish('e1', { ack }).fault(effects));
  assert.deepEqual(dies('memory', { kills: true }), []);
  assert.deepEqual(dies('disk', { kills: true }), ['lost']);
  assert.deepEqual(dies('memory', {}), ['lost']);
});

test('ack: memory may find no room in the log, if a gap says so; ack: disk may not', () => {
  const full = (ack, gaps, effects = { fills: true }) => {
    const told = story();
    const fault = told.history.faultBegun('fault', effects);
    told.publish('e1', { ack }).history.faultEnded(fault);
    for (const gap of gaps) told.say('gap', { from: null, to: null, ...gap });
    return kinds(told.publish('e2').gets('e2'));
  };
  assert.deepEqual(full('memory', [{ reason: 'damaged' }]), []);
  assert.deepEqual(full('memory', []), ['lost']);
  assert.deepEqual(full('disk', [{ reason: 'damaged' }]), ['lost']);
  assert.deepEqual(full('memory', [{ reason: 'damaged' }], {}), ['lost', 'unjust gap']);
});

test('drop-oldest and latest-per-subject excuse what they should, for a stalled client', () => {
  const stalled = (policy) => story({ policy }).say('stall').publish('e1').publish('e2');
  assert.deepEqual(kinds(stalled('latest_per_subject').gets('e2')), []);
  assert.deepEqual(kinds(stalled('latest_per_subject').gets('e1')), ['lost']);
  assert.deepEqual(kinds(stalled('drop_oldest').gets('e2')), ['lost']);
  const told = stalled('drop_oldest').say('gap', { from: null, to: null,
    reason: 'slow_consumer' });
  assert.deepEqual(kinds(told.gets('e2')), []);
  assert.deepEqual(kinds(story({ policy: 'latest_per_subject' })
    .publish('e1').publish('e2').gets('e2')), ['lost']);
});

test('a connection that the server closes needs a cause', () => {
  const closed = () => story().say('close', { by: 'server', why: 'end' });
  assert.deepEqual(kinds(closed()), ['dropped']);
  assert.deepEqual(kinds(story().fault({ kills: true }).say('close', { by: 'server' })),
    ['dropped'], 'a kill of the brain is no cause');
  assert.deepEqual(kinds(story().fault({ closes: true }).say('close', { by: 'server' })), []);
  assert.deepEqual(kinds(story().say('stall').say('close', { by: 'server' })), []);
});

test('what a fault closes may be seen late; who came after it needs another cause', () => {
  const seenLate = () => {
    const told = story().fault({ closes: true });
    told.history.faults[0].endedMs -= 60_000;
    return told.say('close', { by: 'server' });
  };
  assert.deepEqual(kinds(seenLate()), []);
  assert.deepEqual(kinds(seenLate().begin().say('close', { by: 'server' })), ['dropped']);
});

test('a checker that was held up is as slow as a client that stalls, for a while', () => {
  const slow = { policy: 'drop_oldest' };
  const gap = { from: null, to: null, reason: 'slow_consumer' };
  assert.deepEqual(kinds(story().say('late').say('close', { by: 'server' })), []);
  assert.deepEqual(kinds(story(slow).say('late').say('gap', gap)), []);
  const longAgo = story().say('late');
  longAgo.history.user('ann').at(-1).ms -= 60_000;
  assert.deepEqual(kinds(longAgo.say('close', { by: 'server' })), ['dropped']);
  assert.deepEqual(kinds(story().say('late').begin().say('close', { by: 'server' })), ['dropped']);
});

test('an unfollow that was cut off is excused, one from before the cut is not', () => {
  const away = () => story().say('close', { by: 'client' }).publish('e1').follow('unfollow');
  const [behind, before] = [away(), away()];
  behind.history.tailCut(behind.history.events.get('e1').begun);
  assert.deepEqual(kinds(behind.begin(0)), []);
  before.history.tailCut(before.history.tick());
  assert.deepEqual(kinds(before.begin(0)), ['lost']);
});

test('a publish that is never acknowledged is found', () => {
  const stuck = story();
  stuck.history.publishBegun('e1', 'news', 1, 'disk');
  assert.deepEqual(kinds(stuck), ['unacknowledged']);
});

test('the timeline of a failure names the publish, the event and the fault', () => {
  const lost = story().publish('e1').fault({ kills: true }).publish('e2').gets('e2');
  const [violation] = lost.verdict().violations;
  const text = timeline(lost.history, violation).join('\n');
  for (const part of ['publish e1 about news begun', 'publish e1 acknowledged', 'fault',
    'ann: event', 'ann follow news acknowledged']) assert.ok(text.includes(part), part);
});

/** What a list says of a graph in which ann and bob follow news, and carl left. */
function listed(names, { list = 'followers', name = 'news' } = {}) {
  const told = story().follow('follow', 'bob').follow('follow', 'carl').follow('unfollow', 'carl');
  const begun = told.history.tick();
  const ended = told.history.tick();
  return judgeList(told.history, { list, name, names, begun, ended }).map(({ kind, user }) =>
    [kind, user]);
}

test('a list that says what was acknowledged, in whatever order, is right', () => {
  assert.deepEqual(listed(['bob', 'ann']), []);
  assert.deepEqual(listed(['news'], { list: 'following', name: 'bob' }), []);
  assert.deepEqual(listed([], { list: 'following', name: 'carl' }), []);
  assert.deepEqual(listed([], { list: 'following', name: 'dora' }), []);
});

test('a lost follow is found in the lists of both directions', () => {
  assert.deepEqual(listed(['bob']), [['follow lost', 'ann']]);
  assert.deepEqual(listed([], { list: 'following', name: 'bob' }), [['follow lost', 'bob']]);
});

test('a follow that nobody asked for is found: a stranger, one who left, a name twice', () => {
  assert.deepEqual(listed(['ann', 'bob', 'dora']), [['follow invented', 'dora']]);
  assert.deepEqual(listed(['ann', 'bob', 'carl']), [['follow invented', 'carl']]);
  assert.deepEqual(listed(['ann', 'bob', 'ann']), [['listed twice', 'ann']]);
  assert.deepEqual(listed(['news', 'else'], { list: 'following', name: 'ann' }),
    [['follow invented', 'ann']]);
});

test('a follow on its way, and one whose request had no answer, may be there or not', () => {
  const { history } = story();
  history.followBegun('follow', 'bob', 'news');
  const begun = history.tick();
  const late = history.followBegun('follow', 'carl', 'news');
  history.followAcked(late);
  const ended = history.tick();
  for (const names of [['ann'], ['ann', 'bob'], ['ann', 'carl']]) {
    const list = { list: 'followers', name: 'news', names, begun, ended };
    assert.deepEqual(judgeList(history, list), []);
  }
});

test('what lists showed is part of the verdict', () => {
  const told = story();
  told.history.listRead(0, judgeList(told.history,
    { list: 'followers', name: 'news', names: [], begun: 100, ended: 101 }));
  const { ok, kinds: found, tally } = told.verdict();
  assert.deepEqual([ok, found, tally.lists], [false, { 'follow lost': 1 }, 1]);
});

test('a stranger who gets an event about what others follow is found', () => {
  const told = story();
  const { history } = told;
  for (const type of ['connect', 'open']) history.note('dora', type, { conn: 9, keep: 'none' });
  told.publish('e1').gets('e1');
  history.note('dora', 'event', { conn: 9, id: 'e1', subject: 'news', n: 1, whole: true });
  const { violations } = judge(history);
  assert.deepEqual(violations.map(({ kind, user }) => [kind, user]), [['uninvited', 'dora']]);
});

test('a power cut excuses no event that was on disk, and a gap around it is no lie', () => {
  const cut = { kills: true, closes: true, links: true, power: true };
  const gap = { from: null, to: null, reason: 'damaged' };
  const after = story().publish('e1').fault(cut).begin(0).say('gap', gap);
  assert.deepEqual(kinds(after), ['lost']);
  assert.equal(story().publish('e1').gets('e1').fault(cut).begin(1).say('gap', gap).verdict().ok,
    true);
});

test('while the files are away a gap may say so', () => {
  const away = { kills: true, closes: true, away: true };
  const gap = { from: null, to: null, reason: 'damaged' };
  const meanwhile = story().publish('e1');
  const fault = meanwhile.history.faultBegun('data-dir-away', { ...away, fills: true });
  meanwhile.begin(0).say('gap', gap);
  meanwhile.history.faultEnded(fault);
  assert.equal(meanwhile.verdict().ok, true);
});

/** ann and bob alone get what is published as `p1`; cid follows both. */
function aside(profile) {
  const told = story(profile);
  told.history.privates.set('p1', new Set(['ann', 'bob']));
  for (const user of ['ann', 'bob']) {
    told.history.followAcked(told.history.followBegun('follow', 'cid', user));
  }
  return told;
}

test('a private event is owed to its users, whom nobody has to follow', () => {
  const told = aside().publish('e1', { subject: 'p1' });
  assert.deepEqual(kinds(told), ['lost']);
  assert.deepEqual(kinds(told.gets('e1', { subject: 'p1' })), []);
});

test('a private event is for nobody else', () => {
  const told = aside();
  told.history.privates.set('p1', new Set(['bob']));
  told.publish('e1', { subject: 'p1' }).gets('e1', { subject: 'p1' });
  assert.deepEqual(kinds(told), ['uninvited']);
});

test('a private event whose client says something else of it is garbled or uninvited', () => {
  const told = aside().publish('e1', { subject: 'p1' }).gets('e1', { subject: 'bob' });
  assert.notDeepEqual(kinds(told), []);
});

test('no newer private event comes in the place of one before', () => {
  const told = aside({ policy: 'latest_per_subject' }).say('stall').publish('e1', { subject: 'p1' })
    .publish('e2', { subject: 'p1' }).gets('e2', { subject: 'p1' });
  assert.deepEqual(kinds(told), ['lost']);
});

/** ann's sessions are subscribed to `t1`. */
function subscribed() {
  const told = story();
  told.history.subscribed.set('ann', new Set(['t1']));
  return told;
}

test('what is about a subscribed subject is owed, also beside a follow that came and went', () => {
  assert.deepEqual(kinds(subscribed().publish('e1', { subject: 't1' })), ['lost']);
  const told = subscribed().publish('e1', { subject: 't1' }).gets('e1', { subject: 't1' });
  assert.deepEqual(kinds(told), []);
  const both = subscribed();
  both.history.subscribed.get('ann').add('news');
  assert.deepEqual(kinds(both.follow('unfollow').publish('e1')), ['lost']);
});

test('what is about a subject that another is subscribed to must not come', () => {
  const told = subscribed().publish('e1', { subject: 't2' }).gets('e1', { subject: 't2' });
  assert.deepEqual(kinds(told), ['uninvited']);
});

/** What is published as `j1` is about news and sport; dan follows neither. */
function joint(profile) {
  const told = story(profile);
  told.history.joints.set('j1', ['sport', 'news']);
  return told;
}

test('an event about several subjects is owed to who follows one of them', () => {
  const told = joint().publish('e1', { subject: 'j1' });
  assert.deepEqual(kinds(told), ['lost']);
  assert.deepEqual(kinds(told.gets('e1', { subject: 'j1' })), []);
  assert.deepEqual(kinds(told.gets('e1', { subject: 'j1' })), ['doubled']);
});

test('an event about several subjects is for nobody who follows none of them', () => {
  const told = joint().follow('unfollow');
  told.publish('e1', { subject: 'j1' }).gets('e1', { subject: 'j1' });
  assert.deepEqual(kinds(told), ['uninvited']);
});
