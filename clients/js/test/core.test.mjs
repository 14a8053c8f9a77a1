// The core alone, with a clock that stands still and given chance: no sockets, no waiting.

import assert from 'node:assert/strict';
import test from 'node:test';
import { OneWay } from '../dist/one-way.js';
import { S, make } from './lib/core.mjs';

/** A token that is good until then, as far as it says. */
const token = (claims) => `e30.${Buffer.from(JSON.stringify(claims)).toString('base64url')}.x`;

test('a connection that was lost is made again from the cursor of the last event', () => {
  const one = make();
  assert.deepEqual(one.take(), [['open', 0, undefined, undefined]]);
  one.core.message({ cursor: 'c0' });
  one.event('a', 'c1');
  one.pass(60 * S);
  one.core.lost({ code: 'closed' });
  assert.equal(one.wait(), 2 * S, 'the server\'s stream.retry, spread');
  assert.deepEqual(one.take(), [['drop'], ['open', 0, undefined, 'c1']]);
  assert.deepEqual(one.states, ['open', 'reconnecting closed']);
});

test('an event that comes twice is shown once; a gap is shown in its place', () => {
  const one = make();
  one.event('a', 'c1');
  one.event('b', 'c2');
  one.core.message({ gap: { from: 1, to: 2, reason: 'too_old' }, cursor: 'c3' });
  one.event('a', 'c4');
  one.event('c', 'c5');
  assert.deepEqual(one.shown, ['a', 'b', 'gap too_old', 'c']);
  assert.equal(one.core.cursor, 'c5');
});

test('an id that comes again with another time, far away, is another event', () => {
  const one = make();
  for (const at of [0, 600_000, 600_001, 600_001, 0]) {
    one.core.message({ id: 'a', subject: 's', at, data: 1, cursor: 'c' });
  }
  assert.equal(one.shown.length, 3);
});

test('ids are remembered for minutes, then up to a bound, the oldest are forgotten', () => {
  const one = make();
  const say = (n) => one.event(`e${n}`, 'c');
  const shows = (count) => assert.equal(one.shown.length, count);
  for (let n = 0; n < 6_000; n += 1) say(n);
  for (let n = 0; n < 6_000; n += 1) say(n);
  shows(6_000);
  one.pass(300 * S);
  say(6_000);
  say(6_001 - 2_048);
  shows(6_001);
  say(6_000 - 2_048);
  shows(6_002);
});

test('however many come within a minute, some ten thousand are remembered', () => {
  const one = make();
  for (let n = 0; n <= 65_536; n += 1) one.event(`e${n}`, 'c');
  one.event('e1', 'c');
  assert.equal(one.shown.length, 65_537);
  one.event('e0', 'c');
  assert.equal(one.shown.length, 65_538);
});

test('the cursor moves behind an event only when the handlers have had it', () => {
  const one = make();
  one.event('a', 'c1');
  one.core.shell.show = () => { throw new Error('a handler'); };
  assert.throws(() => one.event('b', 'c2'));
  assert.equal(one.core.cursor, 'c1');
});

test('waits double up to half a minute, are spread, and never end', () => {
  const waits = (random) => {
    const one = make({ ways: 1 }, random);
    return Array.from({ length: 9 }, () => {
      one.core.lost({ code: 'unreachable' });
      return one.wait();
    });
  };
  assert.deepEqual(waits(0.5), [1, 2, 4, 8, 16, 30, 30, 30, 30].map((s) => s * S));
  assert.deepEqual(waits(0).slice(0, 2), [500, 1_000]);
  assert.ok(waits(0.999).every((ms, n) => ms > [1, 2, 4, 8, 16, 30, 30, 30, 30][n] * 1_400));
});

test('http.md 13.3: what `retry:` asked for is waited after the connection', () => {
  const one = make();
  one.live();
  one.core.retry(3_210);
  one.pass(60 * S);
  one.core.lost({ code: 'closed' });
  assert.equal(one.wait(), 3_210);
  one.take();
  one.core.lost({ code: 'unreachable' });
  assert.equal(one.wait(), 1 * S, 'of the one before, not of the next');
});

test('http.md 13.2: 503, 429 and `busy` are waited for as told, awake or not', () => {
  const one = make();
  one.core.lost({ code: 'busy', status: 503, retryAfterMs: 17 * S });
  one.core.wake();
  one.core.wake(true);
  assert.equal(one.wait(), 17 * S);
  for (let n = 0; n < 5; n += 1) {
    one.core.lost({ code: 'too_many_requests', status: 429, retryAfterMs: 4 * S });
    assert.equal(one.wait(), 4 * S, 'who is told when to come doesn\'t wait for longer each time');
  }
});

test('a connection that flaps is none that was live for good: waits go on growing', () => {
  const one = make();
  const waits = [1, 2, 3].map(() => {
    one.live();
    one.pass(100);
    one.core.lost({ code: 'closed' });
    return one.wait();
  });
  assert.deepEqual(waits, [1, 2, 4].map((s) => s * S));
});

test('http.md 13.5: whose session was closed for a newer one doesn\'t fight it', () => {
  const one = make();
  one.live();
  one.pass(60 * S);
  one.core.lost({ code: 'too_many_sessions' });
  assert.equal(one.wait(), 30 * S);
});

test('a transport that doesn\'t open gives way to the next, the last one to the first', () => {
  const one = make();
  const used = Array.from({ length: 5 }, () => {
    one.core.lost({ code: 'x', broken: true });
    one.wait();
    return one.take().at(-1)[1];
  });
  assert.deepEqual(used, [1, 2, 3, 0, 1]);
});

test('a transport that gives no byte for ten seconds is broken', () => {
  const one = make();
  assert.equal(one.wait(), 10 * S);
  one.wait();
  assert.deepEqual(one.take().at(-1).slice(0, 2), ['open', 1]);
  assert.deepEqual(one.states, ['connecting open_timeout']);
});

test('where the server itself was away, the first transport is the next', () => {
  for (const loss of [{ code: 'unreachable' }, { code: 'busy', retryAfterMs: S }]) {
    const one = make();
    one.core.lost({ code: 'closed', broken: true });
    one.wait();
    one.core.lost(loss);
    one.wait();
    assert.deepEqual(one.take().filter(([what]) => what === 'open').map((call) => call[1]),
      [0, 1, 0]);
  }
});

test('a fallback that works is kept for ten minutes, or until the network is another', () => {
  const fallen = () => {
    const one = make();
    one.core.lost({ code: 'closed', broken: true });
    one.wait();
    one.live();
    one.take();
    return one;
  };
  const next = (one) => {
    one.core.lost({ code: 'closed' });
    one.wait();
    return one.take().at(-1)[1];
  };
  const soon = fallen();
  soon.pass(300 * S);
  assert.equal(next(soon), 1);
  const late = fallen();
  late.pass(601 * S);
  assert.equal(next(late), 0);
  const moved = fallen();
  moved.core.wake(true);
  assert.equal(next(moved), 0);
});

test('silence: a stream is asked if it can be, else made again at once; twice is a proxy', () => {
  const one = make();
  one.live();
  assert.equal(one.wait(), 75 * S);
  assert.equal(one.wait(), 0);
  assert.deepEqual(one.take().slice(1), [['probe'], ['drop'], ['open', 0, undefined, undefined]]);
  one.live();
  one.wait();
  one.wait();
  assert.equal(one.take().at(-1)[1], 1, 'the second time on, the next transport');

  const asked = make();
  asked.canProbe = true;
  asked.live();
  asked.wait();
  asked.live();
  assert.equal(asked.timer - asked.now, 75 * S, 'it answered');
  asked.wait();
  assert.equal(asked.wait(), 5 * S);
  assert.deepEqual(asked.states, ['open', 'reconnecting silent']);
});

test('a heartbeat between two silences: the network, not a proxy', () => {
  const one = make();
  for (let n = 0; n < 5; n += 1) {
    one.live();
    one.pass(30 * S);
    one.live();
    one.wait();
    one.wait();
    assert.equal(one.take().at(-1)[1], 0);
  }
});

test('a page that wakes up tries now, and looks whether what it has still lives', () => {
  const waiting = make();
  waiting.core.lost({ code: 'unreachable' });
  waiting.core.wake();
  assert.ok(waiting.wait() <= 500);

  const live = make();
  live.live();
  live.pass(3_600 * S);
  live.core.wake();
  assert.equal(live.wait(), 0, 'it slept for an hour: whatever it had is gone');
  assert.deepEqual(live.take().slice(-2).map(([what]) => what), ['drop', 'open']);

  const asked = make();
  asked.canProbe = true;
  asked.live();
  asked.pass(20 * S);
  asked.core.wake();
  assert.equal(asked.wait(), 5 * S);
  assert.deepEqual(asked.states, ['open', 'reconnecting silent']);

  const fresh = make();
  fresh.live();
  fresh.pass(1 * S);
  fresh.core.wake();
  assert.equal(fresh.timer - fresh.now, 74 * S, 'it spoke a second ago');
});

test('offline is said at once, and online tries at once', () => {
  const one = make();
  one.live();
  one.pass(60 * S);
  one.core.lost({ code: 'offline' });
  assert.deepEqual(one.states, ['open', 'reconnecting offline']);
  one.core.wake(true);
  assert.ok(one.wait() <= 500);
});

test('a refusal that waiting doesn\'t change is the end; a proxy\'s isn\'t', () => {
  const refused = make();
  refused.core.lost({ code: 'other_user', status: 403 });
  assert.deepEqual(refused.states, ['closed other_user']);
  assert.equal(refused.timer, Infinity);
  const proxy = make();
  proxy.core.lost({ code: 'http', status: 403 });
  assert.deepEqual(proxy.states, ['connecting http']);
  assert.equal(proxy.wait(), 1 * S);
});

test('one transport without a way back: silence makes it again, and so does a long sleep', () => {
  const one = make({}, 0.5, OneWay);
  one.live();
  assert.equal(one.wait(), 75 * S);
  assert.equal(one.wait(), 0);
  one.live();
  one.pass(30 * S);
  one.core.wake();
  assert.deepEqual(one.states, ['open', 'reconnecting silent', 'open'], 'it may still live');
  one.pass(10 * S);
  one.core.wake();
  assert.equal(one.states.at(-1), 'reconnecting asleep');
  assert.equal(one.wait(), 0);
  one.core.lost({ code: 'http', broken: true });
  one.wait();
  assert.equal(one.take().at(-1)[1], 0, 'there is no other');
});

test('after close nothing is done any more', () => {
  const one = make();
  one.live();
  one.core.close();
  one.take();
  one.core.lost({ code: 'closed' });
  one.event('a', 'c');
  one.core.wake(true);
  one.core.tick();
  one.core.token('x');
  assert.deepEqual([one.take(), one.shown, one.states], [[], [], ['open', 'closed']]);
  assert.equal(one.timer, Infinity);
});

test('a token is asked for before the first connection, and again before it expires', () => {
  const one = make({ asks: true });
  assert.deepEqual(one.take(), [['ask']]);
  const good = token({ exp: one.now / S + 1_000 });
  one.core.token(good);
  assert.deepEqual(one.take(), [['open', 0, good, undefined]]);
  one.live();
  const since = one.now;
  while (!one.take().some(([what]) => what === 'ask')) {
    one.pass(10 * S);
    one.live();
    one.core.tick();
  }
  const ms = one.now - since;
  assert.ok(ms >= 750 * S && ms <= 900 * S, `after ${ms} ms of 1,000,000`);
  const next = token({ exp: one.now / S + 1_000 });
  one.core.token(next);
  assert.deepEqual(one.take(), [['renew', next]]);
});

test('http.md 14.6: when a token has expired the next one opens at once, with the cursor', () => {
  const one = make({ asks: true });
  one.core.token('old');
  one.event('a', 'c1');
  one.pass(60 * S);
  one.take();
  one.core.message({ end: { reason: 'token_expired' }, cursor: 'c2' });
  assert.equal(one.wait(), 0);
  one.core.token('new');
  assert.deepEqual(one.take(), [['drop'], ['ask'], ['open', 0, 'new', 'c2']]);
});

test('a token that was renewed for a stream without a way back opens the next stream', () => {
  const one = make({ asks: true });
  one.core.token('old');
  one.live();
  one.core.token('renewed');
  one.take();
  one.core.message({ end: { reason: 'token_expired' } });
  one.wait();
  assert.deepEqual(one.take(), [['drop'], ['open', 0, 'renewed', undefined]]);
});

test('a callback that gives tokens which are refused is asked ever more seldom', () => {
  const one = make({ asks: true, ways: 1 });
  const waits = [1, 2, 3, 4].map((n) => {
    assert.deepEqual(one.take().at(-1), ['ask']);
    one.core.token(`bad ${n}`);
    one.core.lost({ code: 'token_signature', status: 401 });
    return one.wait();
  });
  assert.deepEqual(waits, [1, 2, 4, 8].map((s) => s * S));
});

test('a token in hand that has become too old meanwhile is replaced at once', () => {
  const one = make({ asks: true, ways: 1 });
  one.core.token('old');
  one.live();
  one.pass(60 * S);
  one.core.lost({ code: 'closed' });
  one.wait();
  one.core.lost({ code: 'token_expired', status: 401 });
  one.take();
  assert.equal(one.wait(), 0);
  assert.deepEqual(one.take(), [['ask']]);
});

test('a callback that fails, or says nothing, is asked again; one that gives null ends it', () => {
  const one = make({ asks: true });
  one.core.tokenFailed('no network');
  assert.equal(one.wait(), 1 * S);
  assert.equal(one.wait(), 30 * S);
  assert.equal(one.wait(), 2 * S);
  assert.deepEqual(one.states, ['connecting token_callback', 'connecting token_callback']);
  one.core.token(null);
  assert.equal(one.states.at(-1), 'closed signed_out');
});

test('a token that is no function ends with itself, and says why', () => {
  const one = make({ token: 'text' });
  assert.deepEqual(one.take(), [['open', 0, 'text', undefined]]);
  one.live();
  one.core.message({ end: { reason: 'token_expired' } });
  assert.deepEqual(one.states, ['open', 'closed token_expired']);
});

test('during an outage a token is asked for once in its life, not for each attempt', () => {
  const one = make({ asks: true, ways: 1 });
  const [since, LIFE_S] = [one.now, 300];
  let asked = 0;
  while (one.now < since + 3_600 * S) {
    if (one.take().some(([what]) => what === 'ask')) {
      asked += 1;
      one.core.token(token({ exp: one.now / S + LIFE_S }));
    }
    one.core.lost({ code: 'unreachable' });
    one.wait();
  }
  assert.ok(asked >= 12 && asked <= 16, `${asked} times in an hour`);
});

test('ten thousand that lost an edge together come back spread over two seconds', () => {
  let state = 1;
  const random = () => (state = (state * 16_807) % 2_147_483_647) / 2_147_483_647;
  const bins = new Map();
  for (let n = 0; n < 10_000; n += 1) {
    const one = make({}, random);
    one.live();
    one.pass(60 * S);
    one.core.lost({ code: 'closed' });
    const bin = Math.floor(one.wait() / 100);
    bins.set(bin, (bins.get(bin) ?? 0) + 1);
  }
  assert.equal(Math.min(...bins.keys()), 10);
  assert.equal(Math.max(...bins.keys()), 29);
  assert.ok(Math.max(...bins.values()) < 600, `${[...bins.values()]}`);
});
