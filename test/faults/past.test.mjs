// Lies for the verdict on walks through the past: each must be found, and the truth must pass.

import assert from 'node:assert/strict';
import test from 'node:test';
import { History } from './lib/history.mjs';
import { judge } from './lib/verdict.mjs';

/** A story about news, of which the pages are what `walk` says. */
class Story {
  constructor(profile = { policy: 'disconnect' }) {
    this.history = new History(profile);
    this.history.joints.set('j', ['news', 'else']);
    this.history.kept.add('kept');
  }

  begin(id, { subject = 'news', ack = 'disk', unknown = 0 } = {}) {
    const event = this.history.publishBegun(id, subject, Number(id.slice(1)), ack);
    event.unknown = unknown;
    return event;
  }

  publish(id, more) {
    this.history.publishAcked(this.begin(id, more));
    return this;
  }

  fault(effects) {
    this.history.faultEnded(this.history.faultBegun('fault', effects));
    return this;
  }

  #entry(page, one) {
    const { id, reason, ...more } = typeof one === 'string' ? { id: one } : one;
    const told = this.history.events.get(id);
    const value = reason ? { type: 'gap', reason, from: null, to: null }
      : { type: 'event', id, subject: told?.subject ?? 'news', n: Number(id.slice(1)), whole: true,
        at: told?.begunMs };
    return { page, t: this.history.tick(), ms: Date.now(), ...value, ...more };
  }

  /** Pages with this, the newest first; then polls with that. */
  walk(pages, polls = [], { subject = 'news', kept } = {}) {
    const walk = { subject, t: this.history.tick(), ms: Date.now(), asked: this.history.tick() };
    const asked = (page, ones) => {
      const about = { asked: this.history.tick() };
      return ones.map((one) => ({ ...about, ...this.#entry(page, one) }));
    };
    walk.entries = asked(true, pages);
    walk.turned = walk.paged = this.history.tick();
    if (polls.length > 0) walk.asked = this.history.tick();
    walk.entries.push(...asked(false, polls));
    walk.ended = this.history.tick();
    if (kept) walk.kept = this.#entry(true, kept);
    this.history.walks.push(walk);
    return this;
  }
}

const kinds = ({ history }) => judge(history).violations.map(({ kind }) => kind);
const three = (profile) => new Story(profile).publish('e1').publish('e2').publish('e3');

test('what is so passes, and is counted', () => {
  const { ok, tally } = judge(three().walk(['e3', 'e2', 'e1']).walk(['e2', 'e1'], ['e3']).history);
  assert.deepEqual([ok, tally.walks, tally.walked], [true, 2, 6]);
});

test('each event that is left out is missed, of the pages and of the polls', () => {
  for (const [pages, polls] of [[['e2', 'e1'], []], [['e3', 'e1'], []], [['e3', 'e2'], []],
    [['e1'], ['e3']], [['e1'], ['e2']], [[], []]]) {
    assert.ok(kinds(three().walk(pages, polls)).includes('past lost'), `${pages} ${polls}`);
  }
});

test('what was acknowledged behind the last request is not owed', () => {
  const story = new Story().publish('e1').walk(['e1']).publish('e2');
  assert.deepEqual(kinds(story), []);
  const open = new Story();
  const event = open.begin('e1');
  open.walk([]);
  open.history.publishAcked(event);
  assert.deepEqual(kinds(open), []);
});

test('an event that comes twice is found, where the pages end as well', () => {
  assert.deepEqual(kinds(three().walk(['e3', 'e2', 'e2', 'e1'])), ['past doubled']);
  assert.deepEqual(kinds(three().walk(['e2', 'e1'], ['e2', 'e3'])), ['past doubled']);
  assert.deepEqual(kinds(three().walk(['e1'], ['e2', 'e3', 'e3'])), []);
  const retried = () => new Story().publish('e1', { unknown: 2 });
  assert.deepEqual(kinds(retried().walk(['e1', 'e1'])), ['past doubled']);
});

test('an order that is not that of the publishing is found', () => {
  for (const [pages, polls] of [[['e2', 'e3', 'e1'], []], [['e1', 'e2', 'e3'], []],
    [['e3', 'e1'], ['e2']]]) {
    assert.ok(kinds(three().walk(pages, polls)).includes('past reordered'), `${pages} ${polls}`);
  }
  const both = new Story();
  const events = ['e1', 'e2'].map((id) => both.begin(id));
  for (const event of events) both.history.publishAcked(event);
  assert.deepEqual(kinds(both.walk(['e1', 'e2']).walk(['e2', 'e1'])), []);
});

test('what was never published, or not about this, is found', () => {
  const story = three().publish('e4', { subject: 'else' }).publish('e5', { subject: 'j' });
  assert.deepEqual(kinds(story.walk(['e5', 'e3', 'e2', 'e1'])), []);
  for (const wrong of ['e9', 'e4', { id: 'e3', whole: false }, { id: 'e3', n: 7 }]) {
    const lie = three().publish('e4', { subject: 'else' }).walk([wrong, 'e2', 'e1']);
    assert.ok(kinds(lie).includes('past garbled'), JSON.stringify(wrong));
  }
});

test('what is about several subjects is owed to the past of each', () => {
  const story = new Story().publish('e1', { subject: 'j' });
  assert.deepEqual(kinds(story.walk(['e1']).walk([], [], { subject: 'else' })), ['past lost']);
});

test('a gap needs a cause, and excuses what it covers', () => {
  const gap = (reason, more) => ({ reason, ...more });
  for (const reason of ['too_old', 'damaged', 'slow_consumer', 'malformed']) {
    assert.deepEqual(kinds(three().walk(['e3', 'e2', 'e1', gap(reason)])), ['past gap']);
  }
  const harmed = (told) => {
    const story = three().fault({ kills: true, damages: true });
    story.history.damage.set('e2', 'the checker flipped a bit');
    return kinds(story.walk(['e3', ...told, 'e1']));
  };
  assert.deepEqual(harmed([gap('damaged')]), []);
  const early = three().fault({ damages: true });
  early.history.damage.set('e2', 'the checker flipped a bit');
  assert.deepEqual(kinds(early.walk(['e2', 'e1', gap('damaged', { from: 1, to: 2 })])),
    ['past lost']);
});

test('what retention took is told by a gap, and it takes nothing early', () => {
  const aged = (ms, told) => {
    const story = three({ policy: 'disconnect', retentionMs: 3_000 });
    story.history.events.get('e1').begunMs -= ms;
    return kinds(story.walk(['e3', 'e2', ...told]));
  };
  assert.deepEqual(aged(4_000, [{ reason: 'too_old' }]), []);
  assert.deepEqual(aged(4_000, []), ['past lost']);
  assert.deepEqual(aged(1_000, [{ reason: 'too_old' }]), ['past lost']);
});

test('what was in memory alone may die with the brain, and nothing else', () => {
  for (const [ack, found] of [['memory', []], ['disk', ['past lost']]]) {
    const story = new Story().publish('e1', { ack }).fault({ kills: true });
    assert.deepEqual(kinds(story.walk([])), found, ack);
  }
});

test('the kept value is the newest, or one that is newer than the walk', () => {
  const kept = () => new Story().publish('e1', { subject: 'kept' })
    .publish('e2', { subject: 'kept' });
  const walk = (value) => kept().walk(['e2', 'e1'], [], { subject: 'kept', kept: value });
  assert.deepEqual(kinds(walk('e2')), []);
  assert.deepEqual(kinds(walk('e1')), ['kept lost']);
  assert.deepEqual(kinds(walk(undefined)), ['kept lost']);
  assert.ok(kinds(walk({ id: 'e2', whole: false })).includes('past garbled'));
});

test('a subject may have an age of its own: nothing goes earlier or is shown later', () => {
  const profile = { policy: 'disconnect', retentionMs: 3_000,
    ages: [['n*', 8_000], ['new*', 5_000], ['o*', 1_000]] };
  const old = (ms, told) => {
    const story = three(profile);
    const event = story.history.events.get('e1');
    event.begunMs -= ms;
    event.ackedMs -= ms;
    return kinds(story.walk(['e3', 'e2', ...told]));
  };
  const gap = { reason: 'too_old' };
  assert.deepEqual([old(4_000, ['e1']), old(4_000, [gap])], [[], ['past lost']]);
  assert.deepEqual([old(5_100, ['e1']), old(5_100, [gap])], [[], []]);
  assert.deepEqual([old(6_000, ['e1']), old(6_000, [gap])], [['past too old'], []]);
  // An id goes before a prefix; and one without an age has the retention's.
  profile.ages.push(['news', 9_000]);
  assert.deepEqual([old(8_000, ['e1']), old(8_000, [gap])], [[], ['past lost']]);
  profile.ages.splice(0, 4, ['o*', 9_000]);
  assert.deepEqual([old(4_000, ['e1']), old(4_000, [gap])], [['past too old'], []]);
});

test('what is for some users alone is promised for history.retention, whatever the ages', () => {
  const alone = (ageMs) => {
    const story = new Story({ policy: 'disconnect', retentionMs: 3_000, ages: [['o*', 9_000]] });
    story.history.privates.set('alone', new Set(['ann']));
    story.history.note('ann', 'connect', { conn: 1, keep: 'none' });
    story.history.note('ann', 'open', { conn: 1 });
    story.publish('e1', { subject: 'alone' });
    story.history.events.get('e1').begunMs -= ageMs;
    story.history.note('ann', 'gap', { conn: 1, from: null, to: null, reason: 'too_old' });
    return kinds(story);
  };
  assert.deepEqual([alone(1_000), alone(5_000)], [['lost'], []]);
});

const COUNTED = { policy: 'disconnect', counts: [['n*', 9], ['news', 2]] };
const MORE = { reason: 'too_old' };

test('pages show no more than the newest of a counted subject, and say that there is more', () => {
  const counted = (...walk) => kinds(three(COUNTED).walk(...walk));
  assert.deepEqual(counted(['e3', 'e2', MORE]), []);
  assert.deepEqual(counted(['e3', 'e2', 'e1']), ['past too many']);
  assert.deepEqual(counted(['e3', 'e2']), ['past lost']);
  assert.deepEqual(counted(['e3', MORE]), ['past lost']);
  // A gap that isn't about its time, or that the polls told, excuses nothing.
  assert.deepEqual(counted(['e3', 'e2', { ...MORE, from: 1, to: 2 }]), ['past lost']);
  assert.deepEqual(counted(['e3', 'e2'], [MORE]), ['past lost', 'past gap']);
});

test('where there is no more than the count, nothing is hidden', () => {
  const two = () => new Story(COUNTED).publish('e1').publish('e2');
  assert.deepEqual(kinds(two().walk(['e2', 'e1'])), []);
  assert.deepEqual(kinds(two().walk(['e2', 'e1', MORE])), ['past gap']);
  assert.deepEqual(kinds(two().walk(['e2', MORE])), ['past lost', 'past gap']);
});

test('a count is as of when a page is read', () => {
  const walked = (one) => {
    const story = new Story(COUNTED).publish('e1').publish('e2');
    const early = story.history.tick();
    return kinds(story.publish('e3').walk(['e3', 'e2', one(early), MORE]));
  };
  assert.deepEqual(walked((early) => ({ id: 'e1', asked: early })), []);
  assert.deepEqual(walked(() => 'e1'), ['past too many']);
});

test('what comes behind the pages comes whatever the count is', () => {
  const walked = (polls) => {
    const story = new Story(COUNTED).publish('e1').walk(['e1']);
    const [walk] = story.history.walks;
    for (const id of ['e2', 'e3', 'e4']) story.publish(id);
    story.history.walks = [];
    story.walk([], polls);
    const [{ asked, ended, entries }] = story.history.walks;
    story.history.walks = [{ ...walk, asked, ended, entries: [...walk.entries, ...entries] }];
    return kinds(story);
  };
  assert.deepEqual(walked(['e2', 'e3', 'e4']), []);
  assert.deepEqual(walked(['e3', 'e4']), ['past lost']);
});

test('what a fault may have taken makes nothing older than the count', () => {
  const story = three(COUNTED).fault({ kills: true, damages: true });
  story.history.damage.set('e3', 'the checker cut the tail');
  assert.deepEqual(kinds(story.walk(['e2', 'e1'])), []);
  const memory = new Story(COUNTED).publish('e1').publish('e2').publish('e3', { ack: 'memory' });
  assert.deepEqual(kinds(memory.fault({ kills: true }).walk(['e2', 'e1'])), []);
});
