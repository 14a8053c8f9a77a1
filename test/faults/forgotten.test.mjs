// Lies for the verdict about deleted users: each must be found, and the truth pass.

import assert from 'node:assert/strict';
import test from 'node:test';
import { judgeList } from './lib/answers.mjs';
import { History } from './lib/history.mjs';
import { judge } from './lib/verdict.mjs';

/** A story in which ann follows dora, who follows news; `alone` is for dora, `both` for both. */
class Story {
  conn = 1;

  constructor() {
    this.history = new History({ policy: 'disconnect' });
    this.history.privates.set('alone', new Set(['dora']));
    this.history.privates.set('both', new Set(['ann', 'dora']));
    this.history.kept.add('dora');
    this.history.joints.set('j', ['dora', 'news']);
    for (const pair of [['ann', 'dora'], ['dora', 'news']]) {
      this.history.followAcked(this.history.followBegun('follow', ...pair));
    }
    for (const user of ['ann', 'dora']) this.comes(user, 'none');
  }

  /** A client goes on with what it kept, on a new connection. */
  comes(user, keep) {
    this.conn += 1;
    const about = { conn: this.conn, transport: 'sse' };
    this.history.note(user, 'connect', { ...about, keep });
    this.history.note(user, 'open', about);
    return this;
  }

  says(user, type, more) {
    this.history.note(user, type, { conn: this.conn, transport: 'sse', ...more });
    return this;
  }

  publish(id, subject) {
    const event = this.history.publishBegun(id, subject, 1, 'disk');
    this.history.publishAcked(event);
    return this;
  }

  #told(id) {
    const { subject, begunMs } = this.history.events.get(id);
    return { id, subject, n: 1, whole: true, at: begunMs };
  }

  gets(user, ...ids) {
    for (const id of ids) this.says(user, 'event', this.#told(id));
    return this;
  }

  dies({ isAcked = true } = {}) {
    const death = this.history.deathBegun('dora');
    if (isAcked) this.history.deathAcked(death);
    return this;
  }

  /** Pages of dora's past with these events, and this kept value. */
  walk(ids, kept) {
    const { history } = this;
    const entry = (id) => ({ type: 'event', page: true, t: history.tick(), ms: Date.now(),
      ...this.#told(id) });
    const walk = { subject: 'dora', t: history.tick(), ms: Date.now(), asked: history.tick() };
    walk.entries = ids.map(entry);
    if (kept) walk.kept = entry(kept);
    history.walks.push({ ...walk, ended: history.tick() });
    return this;
  }
}

const kinds = ({ history }) => judge(history).violations.map(({ kind }) => kind);
const TOO_OLD = { from: null, to: null, reason: 'too_old' };

/** Dora was away when these were published, and was deleted then. */
const missed = (...subjects) => {
  const story = new Story().says('dora', 'close', { by: 'client' });
  for (const [n, subject] of subjects.entries()) story.publish(`e${n}`, subject);
  return story.dies();
};

test('who comes back as somebody new gets a gap, and nothing from before', () => {
  const story = missed('alone', 'news').comes('dora', 0).says('dora', 'gap', TOO_OLD);
  assert.deepEqual(kinds(story), []);
  for (const id of ['e0', 'e1']) {
    assert.deepEqual(kinds(missed('alone', 'news').comes('dora', 0).gets('dora', id)),
      ['shown again'], id);
  }
  const early = new Story().comes('dora', 0).says('dora', 'gap', TOO_OLD).dies();
  assert.deepEqual(kinds(early), ['unjust gap']);
});

test('what was about her is shown to nobody, what was for others as well to these', () => {
  const away = () => missed('dora', 'both');
  assert.deepEqual(kinds(away().gets('ann', 'e1')), []);
  assert.deepEqual(kinds(away()), ['lost']);
  assert.deepEqual(kinds(away().comes('ann', 0).gets('ann', 'e0', 'e1')), ['shown again']);
  assert.deepEqual(kinds(missed('j').comes('ann', 0).gets('ann', 'e0')), ['shown again']);
});

test('what was sent before may be read later, and what is published behind it counts', () => {
  assert.deepEqual(kinds(missed('dora').gets('ann', 'e0')), []);
  const anew = () => missed('dora').comes('dora', 0).publish('e1', 'dora');
  assert.deepEqual(kinds(anew().gets('dora', 'e1')), []);
  assert.deepEqual(kinds(anew()), ['lost']);
  assert.deepEqual(kinds(anew().gets('dora', 'e1').gets('ann', 'e1')), ['uninvited']);
});

test('pages of her past have what was published behind it, and nothing else', () => {
  const story = (ids, kept) => kinds(missed('dora', 'dora').comes('dora', 0)
    .publish('e2', 'dora').gets('dora', 'e2').walk(ids, kept));
  assert.deepEqual(story(['e2'], 'e2'), []);
  assert.deepEqual(story(['e2', 'e1'], 'e2'), ['shown again']);
  assert.deepEqual(story([], 'e2'), ['past lost']);
  assert.deepEqual(story(['e2'], undefined), ['kept lost']);
  assert.deepEqual(story(['e2'], 'e1').sort(), ['kept lost', 'shown again']);
  assert.deepEqual(kinds(missed('dora').walk([], undefined)), []);
  assert.deepEqual(kinds(missed('dora').walk([], 'e0')), ['shown again']);
});

test('while it has no answer both are right', () => {
  const open = (...ids) => {
    const story = new Story().publish('e0', 'dora').gets('dora', 'e0').gets('ann', 'e0');
    return kinds(story.dies({ isAcked: false }).walk(ids, ids[0]).comes('ann', 0));
  };
  assert.deepEqual(open('e0'), []);
  assert.deepEqual(open(), []);
});

test('her sessions may be closed by it, and no other one', () => {
  const closed = (user, conn) => {
    const story = new Story().dies();
    return kinds(story.says(user, 'close', { by: 'server', why: 'end', conn }));
  };
  assert.deepEqual(closed('dora'), []);
  assert.deepEqual(closed('ann'), ['dropped']);
  const anew = new Story().dies().comes('dora', 0).says('dora', 'close', { by: 'server' });
  assert.deepEqual(kinds(anew), ['dropped']);
});

test('her follows end both ways, whatever comes then', () => {
  const { history } = missed();
  for (const [list, other] of [['followers', 'ann'], ['following', 'news']]) {
    const about = { list, name: 'dora', begun: history.tick(), ended: history.tick() };
    const found = judgeList(history, { ...about, names: [other] });
    assert.deepEqual(found.map(({ kind }) => kind), ['follow invented']);
    assert.deepEqual(judgeList(history, { ...about, names: [] }), []);
  }
});

test('a record that a fault took hides nothing, and is no excuse for other faults', () => {
  const harmed = (harm) => {
    const story = missed('dora');
    harm(story.history);
    return kinds(story.walk(['e0'], 'e0'));
  };
  const fault = (effects) => (history) => history.faultEnded(history.faultBegun('f', effects));
  assert.deepEqual(harmed((history) => history.tailCut(0)), []);
  assert.deepEqual(harmed(fault({ anywhere: true, damages: true })), []);
  assert.deepEqual(harmed((history) => history.tailCut(history.tick())),
    ['shown again', 'shown again']);
  assert.deepEqual(harmed(fault({ kills: true, power: true, closes: true })),
    ['shown again', 'shown again']);
});
