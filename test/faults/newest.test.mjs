// Lies for the verdict on the newest events that a session begins with (`last=`).

import assert from 'node:assert/strict';
import test from 'node:test';
import { Story, kinds } from './lib/story.mjs';

/** A session of ann that wishes for the newest two about topic, to which it is subscribed. */
function wish(published, profile = { policy: 'disconnect' }) {
  const told = new Story(profile);
  told.history.subscribed.set('ann', new Set(['topic']));
  told.history.kept = new Set(['topic']);
  told.history.joints.set('j1', ['news', 'topic']);
  for (const [id, subject] of published) told.publish(id, { subject });
  told.conn += 1;
  return told.say('connect', { keep: 'none', last: 2 }).say('open');
}

test('the newest that a session asks for are owed, and no others', () => {
  const about = { subject: 'topic' };
  const told = () => wish([['e1', 'topic'], ['e2', 'topic'], ['e3', 'topic']]);
  assert.deepEqual(kinds(told()), ['lost', 'lost']);
  assert.deepEqual(kinds(told().gets('e2', about).gets('e3', about)), []);
  assert.deepEqual(kinds(told().gets('e3', about)), ['lost']);
  assert.deepEqual(kinds(told().gets('e3', about).gets('e2', about)), ['reordered']);
});

test('events about several subjects count among the newest of each', () => {
  const told = wish([['e1', 'topic'], ['e2', 'j1'], ['e3', 'topic']]);
  assert.deepEqual(kinds(told), ['lost', 'lost']);
  assert.deepEqual(kinds(told.gets('e2', { subject: 'j1' }).gets('e3', { subject: 'topic' })), []);
});

test('a kept value is owed however old it is, and others are not', () => {
  const old = wish([['e1', 'topic'], ['e2', 'topic']], { policy: 'disconnect', retentionMs: 1 });
  for (const event of old.history.events.values()) event.begunMs -= 10_000;
  assert.deepEqual(kinds(old), ['lost']);
  assert.deepEqual(kinds(old.gets('e2', { subject: 'topic' })), []);
});

test('who does not ask for the newest gets nothing from before', () => {
  const told = new Story();
  told.history.subscribed.set('ann', new Set(['topic']));
  told.publish('e1', { subject: 'topic' }).begin().gets('e1', { subject: 'topic' });
  assert.deepEqual(kinds(told), ['stray']);
});

test('more than the newest is found, and what may be newer is no reason to leave one out', () => {
  const told = (profile) => wish([['e1', 'topic'], ['e2', 'topic'], ['e3', 'topic']], profile);
  const gets = (story, ...ids) => {
    for (const id of ids) story.gets(id, { subject: 'topic' });
    return kinds(story);
  };
  assert.deepEqual(gets(told(), 'e1', 'e2', 'e3'), ['stray']);
  // Where the link breaks while they come there may be more; not where it broke before.
  assert.deepEqual(gets(told().fault({ kills: true }), 'e1', 'e2', 'e3'), []);
  const before = told();
  before.fault({ kills: true });
  for (const fault of before.history.faults) fault.endedMs -= 10_000;
  for (const event of before.history.events.values()) event.begunMs -= 20_000;
  assert.deepEqual(gets(before, 'e1', 'e2', 'e3'), ['stray']);
  const counted = { policy: 'disconnect', counts: [['t*', 1]] };
  assert.deepEqual(gets(told(counted), 'e3'), []);
  assert.deepEqual(gets(told(counted), 'e2', 'e3'), ['stray']);
  assert.deepEqual(gets(told(counted)), ['lost']);
});

test('what is published behind the newest takes none of their places', () => {
  const told = (...ids) => {
    const story = wish([['e1', 'topic'], ['e2', 'topic']]);
    for (const id of ids) story.gets(id, { subject: 'topic' });
    for (const id of ['e3', 'e4', 'e5']) {
      story.publish(id, { subject: 'topic' }).gets(id, { subject: 'topic' });
    }
    return kinds(story);
  };
  assert.deepEqual(told('e1', 'e2'), []);
  assert.deepEqual(told('e2'), ['lost']);
});

test('what grows too old while a session waits for its newest is not owed', () => {
  const waits = (ms) => {
    const story = wish([['e1', 'topic'], ['e2', 'topic']],
      { policy: 'disconnect', retentionMs: 3_000 });
    story.history.kept.clear();
    story.history.events.get('e1').begunMs -= 2_000;
    story.gets('e2', { subject: 'topic' });
    story.history.user('ann').at(-1).ms += ms;
    return kinds(story);
  };
  assert.deepEqual([waits(0), waits(2_000)], [['lost'], []]);
});
