// Lies for the verdict on admissions (`auth.connect_url`).

import assert from 'node:assert/strict';
import test from 'node:test';
import { LetIn } from './lib/let_in.mjs';
import { Story, kinds } from './lib/story.mjs';

const REASON = 'close 1001 connect_refused: the server says so';
const CHUNK = 'the last chunk';

/** A story whose wall clock goes as it is told. */
class Door extends Story {
  ms = Date.now();

  constructor(more) {
    super({ policy: 'disconnect', connectTtlMs: 1_000, ...more });
  }

  after(ms) {
    this.ms += ms;
    return this;
  }

  says(says, user = 'ann') {
    this.history.admitted(user, says);
    this.history.admissions.get(user).at(-1).ms = this.ms;
    if (says === 'none') this.history.unanswered.splice(-1, 1, this.ms);
    return this;
  }

  say(type, more) {
    super.say(type, more);
    this.history.user('ann').at(-1).ms = this.ms;
    return this;
  }

  comes(more) {
    this.conn += 1;
    return this.say('connect', { keep: 'none', ...more });
  }

  /** A fault that lasts a second. */
  fails(effects) {
    const fault = this.history.faultBegun('fault', effects);
    fault.begunMs = this.ms;
    this.after(1_000).history.faultEnded(fault);
    fault.endedMs = this.ms;
    return this;
  }

  ends(why = REASON) {
    return this.say('close', { by: 'server', why });
  }

  leaves() {
    return this.say('close', { by: 'client', why: 'dropped' });
  }
}

/** ann has a session, and its server refuses her from then on; then the brain is killed. */
const inside = () => new Door().comes().says('yes').say('open').after(20_000);
const restarted = () => inside().fails({ kills: true }).after(100);

test('a session opens when the operator says so, and not otherwise', () => {
  assert.deepEqual(kinds(new Door().comes().says('yes').say('open')), []);
  assert.deepEqual(kinds(new Door().comes().say('open')), ['let in']);
  for (const says of ['no', 'none']) {
    assert.deepEqual(kinds(new Door().comes().says(says).say('open')), ['let in'], says);
  }
  assert.deepEqual(kinds(new Door().comes().says('yes', 'bob').say('open')), ['let in']);
});

test('an event shows a session, too; of a poll nothing else does', () => {
  const polls = (...said) => {
    const story = new Door().comes({ transport: 'poll' }).say('open', { transport: 'poll' });
    for (const says of said) story.says(says);
    return story.publish('e1');
  };
  assert.deepEqual(kinds(polls('no').leaves()), ['lost']);
  assert.deepEqual(kinds(polls('no').gets('e1')), ['let in']);
  assert.deepEqual(kinds(polls('yes').gets('e1')), []);
});

test('an answer counts for its time, and until there is another', () => {
  const later = (ms, ...said) => {
    const story = new Door();
    for (const says of said) story.says(says);
    return kinds(story.after(ms).comes().say('open'));
  };
  assert.deepEqual(later(500, 'yes'), []);
  assert.deepEqual(later(10_000, 'yes'), ['let in']);
  assert.deepEqual(later(500, 'yes', 'no'), ['let in']);
  assert.deepEqual(later(500, 'yes', 'none'), []);
});

test('who waits while a link syncs may come in unasked, nobody else', () => {
  const synced = (effects, ms) => kinds(new Door().fails(effects).after(ms).comes().say('open'));
  assert.deepEqual(synced({ kills: true }, 500), []);
  assert.deepEqual(synced({ links: true }, 500), []);
  assert.deepEqual(synced({ kills: true }, 10_000), ['let in']);
  assert.deepEqual(synced({ silences: true }, 500), ['let in']);
});

test('a refusal that is found out after a restart ends the session', () => {
  // A fault's cause for closing is over by then.
  const story = () => restarted().after(3_500).says('no');
  assert.deepEqual(kinds(story().after(100).ends()), []);
  assert.deepEqual(kinds(story().after(6_000).leaves()), ['stayed']);
  const event = story().publish('e1').after(6_000).gets('e1');
  assert.deepEqual(kinds(event), ['stayed']);
  assert.deepEqual(kinds(story().after(100).ends(CHUNK)), []);
  for (const why of ['close 1001 closed', 'close', 'closed', 'end']) {
    assert.deepEqual(kinds(story().after(100).ends(why)), ['dropped'], why);
  }
  // Another answer, or another restart, before it could.
  assert.deepEqual(kinds(story().says('yes').after(6_000).leaves()), []);
  assert.deepEqual(kinds(story().fails({ kills: true }).after(3_000).leaves()), []);
});

test('who lives on in a new brain is asked about, in the same one nobody need be', () => {
  const after = (effects) =>
    kinds(inside().fails(effects).after(8_000).publish('e1').gets('e1').leaves());
  assert.deepEqual(after({ kills: true }), ['stayed']);
  assert.deepEqual(after({ kills: true, spares: true }), []);
});

test('no answer ends nothing, and such an end needs a refusal and a restart', () => {
  assert.deepEqual(kinds(restarted().says('none').after(6_000).leaves()), []);
  for (const why of [REASON, CHUNK]) {
    assert.deepEqual(kinds(restarted().says('none').ends(why)), ['dropped']);
    assert.deepEqual(kinds(restarted().says('yes').ends(why)), ['dropped']);
    assert.deepEqual(kinds(inside().says('no').ends(why)), ['dropped']);
  }
  // Whatever else may close it.
  assert.deepEqual(kinds(inside().fails({ closes: true }).ends()), ['dropped']);
  assert.deepEqual(kinds(inside().fails({ closes: true }).ends('closed')), []);
});

test('who is there when a brain starts is asked about', () => {
  assert.deepEqual(kinds(restarted().after(6_000).leaves()), ['stayed']);
  assert.deepEqual(kinds(restarted().says('yes').after(6_000).leaves()), []);
  assert.deepEqual(kinds(restarted().after(1_000).leaves()), []);
  const silent = inside().fails({ kills: true }).fails({ silences: true }).after(6_000).leaves();
  assert.deepEqual(kinds(silent), []);
  const visitor = restarted();
  visitor.history.visitors.add('ann');
  assert.deepEqual(kinds(visitor.after(6_000).leaves()), []);
});

test('nobody is turned away without a refusal', () => {
  const refused = (...said) => {
    const story = new Door().comes();
    for (const says of said) story.says(says);
    return kinds(story.say('refused', { code: 'connect_refused' }).leaves());
  };
  assert.deepEqual(refused('no'), []);
  for (const said of [[], ['yes'], ['none']]) assert.deepEqual(refused(...said), ['turned away']);
  const known = new Door().says('no').after(500).comes();
  assert.deepEqual(kinds(known.say('refused', { code: 'connect_refused' }).leaves()), []);
  const old = new Door().says('no').after(10_000).comes();
  assert.deepEqual(kinds(old.say('refused', { code: 'connect_refused' })), ['turned away']);
  const none = new Story().say('connect', { keep: 'none' });
  assert.deepEqual(kinds(none.say('refused', { code: 'connect_refused' })), ['turned away']);
});

test('nobody is told that there is no answer while all come', () => {
  const unavailable = (story) => kinds(story.say('refused', { code: 'connect_unavailable' }));
  assert.deepEqual(unavailable(new Door().comes().says('none')), []);
  assert.deepEqual(unavailable(new Door().says('none', 'bob').after(3_000).comes()), []);
  assert.deepEqual(unavailable(new Door().fails({ silences: true }).comes()), []);
  assert.deepEqual(unavailable(new Door().comes().says('yes')), ['turned away']);
  assert.deepEqual(unavailable(new Door().says('none').after(30_000).comes()), ['turned away']);
});

test('where nobody is asked, all of it is as it was', () => {
  const story = new Story().begin().publish('e1').gets('e1');
  assert.deepEqual(kinds(story), []);
  assert.equal(new LetIn(story.history, 'ann').isAsked, false);
});
