// Lies for the verdict on answers to a WebSocket's `subscribe` with `last`.

import assert from 'node:assert/strict';
import test from 'node:test';
import { Story, kinds } from './lib/story.mjs';

const TOPIC = { subject: 'topic' };

/** A session of ann that asks for the newest two about topic, by an operation. */
class Asking extends Story {
  constructor(profile) {
    super(profile);
    this.history.subscribed.set('ann', new Set(['topic']));
    this.history.joints.set('j1', ['news', 'topic']);
    this.history.privates.set('p', new Set(['ann']));
  }

  about(...ids) {
    for (const id of ids) this.publish(id, TOPIC);
    return this;
  }

  /** As it connects; `more` may say a cursor and that its subjects are in the address. */
  comes(more = { keep: 'none', byOperations: true }) {
    this.conn += 1;
    return this.say('connect', more);
  }

  asks() {
    this.asked = this.history.tick();
    return this;
  }

  #entry(one) {
    const { id, reason, ...more } = typeof one === 'string' ? { id: one } : one;
    if (reason) return { type: 'gap', from: null, to: null, reason, ...more };
    const subject = this.history.events.get(id)?.subject ?? 'topic';
    return { type: 'event', id, subject, n: Number(id.slice(1)), whole: true, ...more };
  }

  answers(entries, kept) {
    return this.say('answer', { subject: 'topic', last: 2, asked: this.asked,
      entries: entries.map((one) => this.#entry(one)), kept: kept && this.#entry(kept) });
  }

  live(...ids) {
    for (const id of ids) this.gets(id, { subject: this.history.events.get(id).subject });
    return this;
  }
}

const three = (profile) => new Asking(profile).about('e1', 'e2', 'e3').comes().asks();

test('an answer has the newest, in order, and no others', () => {
  const answered = (...entries) => kinds(three().answers(entries).say('open'));
  assert.deepEqual(answered('e2', 'e3'), []);
  assert.deepEqual(answered('e3'), ['lost']);
  assert.deepEqual(answered('e2'), ['lost']);
  assert.deepEqual(answered(), ['lost', 'lost']);
  assert.deepEqual(answered('e3', 'e2'), ['reordered']);
  assert.deepEqual(answered('e2', 'e3', 'e3'), ['doubled']);
  assert.deepEqual(answered('e1', 'e2', 'e3'), ['stray']);
  const counted = { policy: 'disconnect', counts: [['topic', 1]] };
  assert.deepEqual(kinds(three(counted).answers(['e3']).say('open')), []);
  assert.deepEqual(kinds(three(counted).answers(['e2', 'e3']).say('open')), ['stray']);
});

test('an answer with what was not published like this, or of something else, is garbled', () => {
  for (const wrong of ['e9', { id: 'e2', n: 7 }, { id: 'e2', whole: false }]) {
    assert.ok(kinds(three().answers([wrong, 'e3'])).includes('garbled'), JSON.stringify(wrong));
  }
  const other = new Asking().publish('e1').comes().asks().answers(['e1']);
  assert.deepEqual(kinds(other), ['garbled']);
});

test('an answer is judged where the connection ends before the others have come', () => {
  const left = three().answers(['e3']).say('close', { by: 'client' });
  assert.deepEqual(kinds(left), ['lost']);
});

test('what is published behind an answer comes live, however many others are to come', () => {
  const told = () => three().answers(['e2', 'e3']).about('e4').say('open').about('e5');
  assert.deepEqual(kinds(told().live('e4', 'e5')), []);
  assert.deepEqual(kinds(told().live('e5')), ['lost']);
  assert.deepEqual(kinds(told().live('e4')), ['lost']);
});

test('what is published in the moment of the operation is in the answer, or live, or both', () => {
  const told = (entries, ...ids) => {
    const story = new Asking().about('e1').comes().asks().about('e2');
    return kinds(story.answers(entries).say('open').live(...ids));
  };
  assert.deepEqual(told(['e1', 'e2']), []);
  assert.deepEqual(told(['e1'], 'e2'), []);
  assert.deepEqual(told(['e1', 'e2'], 'e2'), []);
  assert.deepEqual(told(['e1']), ['lost']);
});

test('what was published before the operation comes once', () => {
  const told = new Asking().about('e2').comes().about('e3').asks().answers(['e2', 'e3']);
  assert.deepEqual(kinds(told.say('open').live('e3')), ['doubled']);
  // A link that came back sends what it missed to whoever is there then.
  const broken = three().fault({ kills: true }).answers(['e2', 'e3']).say('open');
  assert.deepEqual(kinds(broken.live('e3')), []);
});

test('what comes live for another reason may be in the answer as well', () => {
  const joint = new Asking().comes().publish('e1', { subject: 'j1' }).asks().answers(['e1'])
    .say('open').live('e1');
  assert.deepEqual(kinds(joint), []);
  // While it is sent what it missed, a session that asks once more has it twice.
  const again = new Asking().begin().live().say('close', { by: 'client' }).about('e1', 'e2')
    .comes({ keep: 0 }).say('open').asks().answers(['e1', 'e2']).live('e1', 'e2');
  assert.deepEqual(kinds(again), []);
});

test('who comes back with a cursor has what was in an answer, and is owed what was not', () => {
  const back = () => three().answers(['e2', 'e3']).say('open').say('close', { by: 'client' })
    .about('e4').comes({ keep: 0 }).say('open');
  assert.deepEqual(kinds(back().live('e4')), []);
  assert.deepEqual(kinds(back()), ['lost']);
});

test('a gap in an answer needs a cause, and excuses what it is about', () => {
  const gap = (reason, more) => ({ reason, ...more });
  for (const reason of ['too_old', 'damaged', 'slow_consumer']) {
    assert.deepEqual(kinds(three().answers(['e2', 'e3', gap(reason)])), ['unjust gap'], reason);
  }
  const old = three({ policy: 'disconnect', retentionMs: 60_000 });
  assert.deepEqual(kinds(old.answers(['e2', 'e3', gap('too_old')])), ['unjust gap']);
  const harmed = (told) => {
    const story = three().fault({ damages: true });
    story.history.damage.set('e2', 'the checker flipped a bit');
    return kinds(story.answers([...told, 'e3']).say('open'));
  };
  assert.deepEqual(harmed([gap('damaged')]), []);
  const other = three().fault({ damages: true });
  other.history.damage.set('e1', 'the checker flipped a bit');
  assert.deepEqual(kinds(other.answers(['e3', gap('damaged')]).say('open')), ['lost']);
});

test('one gap may stand for all events while the log stands still, and then alone', () => {
  const all = { reason: 'damaged' };
  const answered = (entries, effects = { fills: true, still: true }) => {
    const story = new Asking().about('e1', 'e2', 'e3').comes();
    const fault = story.history.faultBegun('disk-still', effects);
    story.asks().answers(entries);
    story.history.faultEnded(fault);
    return kinds(story.say('open'));
  };
  assert.deepEqual(answered([all]), []);
  assert.deepEqual(answered(['e3', all]), ['lost']);
  assert.deepEqual(answered([]), ['lost', 'lost']);
  assert.deepEqual(answered([{ ...all, from: 1 }]), ['lost', 'lost']);
  assert.deepEqual(answered([all], { fills: true }), ['lost', 'lost']);
  const before = new Asking().about('e1', 'e2', 'e3').comes();
  before.history.faultEnded(before.history.faultBegun('disk-still', { fills: true, still: true }));
  assert.deepEqual(kinds(before.asks().answers([all]).say('open')), ['lost', 'lost']);
});

test('an answer has the kept value, or one that is newer', () => {
  const kept = (value) => {
    const story = three();
    story.history.kept.add('topic');
    return kinds(story.answers(['e2', 'e3'], value).say('open'));
  };
  assert.deepEqual(kept('e3'), []);
  assert.deepEqual(kept('e2'), ['kept lost']);
  assert.deepEqual(kept(undefined), ['kept lost']);
  assert.ok(kept({ id: 'e3', whole: false }).includes('garbled'));
});

test('nothing from before a deletion is in an answer', () => {
  const told = (...entries) => {
    const story = new Asking().about('e1', 'e2');
    story.history.deathAcked(story.history.deathBegun('topic'));
    return kinds(story.about('e3').comes().asks().answers(entries).say('open'));
  };
  assert.deepEqual(told('e3'), []);
  assert.deepEqual(told('e2', 'e3'), ['shown again']);
});
