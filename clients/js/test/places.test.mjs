// Any place that a page can be, and what callbacks, clocks, users and networks do there. In the
// simulator, so that minutes take no time.

import assert from 'node:assert/strict';
import test from 'node:test';
import { inWorld } from './simulator/world.mjs';

const tokenOf = (sub, n = 0) =>
  `e30.${Buffer.from(JSON.stringify({ sub, n, exp: 1e9 + 60, iat: 1e9 })).toString('base64url')}.x`;

const shows = (page, last) => assert.equal(page.shown.at(-1), last);

/** Says something, which each of them shows. */
function all(world, ...pages) {
  const { event: { data } } = world.server.publish('me');
  world.pass(1_000);
  for (const page of pages) shows(page, data);
}

for (const [where, browser] of [['locks', { locks: false }], ['channels', { channels: false }]]) {
  test(`where ${where} are refused each tab has a connection`, inWorld((world) => {
    const pages = [world.open(), world.open()];
    world.pass(3_000);
    all(world, ...pages);
    assert.equal(world.server.sessions.size, 2);
    assert.deepEqual(world.browser.thrown, []);
  }, { browser }));
}

test('what a restarted brain brings again isn\'t new to a younger tab', inWorld((world) => {
  const older = world.open();
  world.pass(1_000);
  all(world, older);
  const younger = world.open();
  world.pass(1_000);
  all(world, older, younger);
  world.server.repeat(2);
  world.pass(1_000);
  all(world, older, younger);
  assert.deepEqual(older.shown, [0, 1, 2]);
  assert.deepEqual(younger.shown, [1, 2]);
}));

test('a leader that is frozen is put aside within two seconds', inWorld((world) => {
  const [leader, other] = [world.open(), world.open()];
  world.pass(60_000);
  leader.tab.freeze();
  const { event: { data } } = world.server.publish('me');
  world.pass(2_000);
  shows(other, data);
  leader.tab.thaw();
  world.pass(5_000);
  all(world, leader, other);
  assert.equal(world.server.sessions.size, 1);
}));

test('tabs share again after a minute without a server, in which their leader closed',
  inWorld((world) => {
    const pages = [1, 2, 3].map(() => world.open({ subjects: ['a'] }));
    world.pass(5_000);
    world.server.down();
    world.network.cutAll();
    world.pass(20_000);
    pages[0].tab.end();
    world.network.forget(pages[0].tab);
    world.pass(40_000);
    world.server.up();
    world.pass(60_000);
    all(world, pages[1], pages[2]);
    assert.equal(world.server.sessions.size, 1);
  }));

test('another user in the leader\'s tab: nobody gets what is for the other', inWorld((world) => {
  let user = 'ann';
  const leader = world.open({ user: undefined, token: () => tokenOf(user), share: true });
  world.pass(2_000);
  const other = world.open({ user: undefined, token: () => tokenOf('ann') });
  world.pass(2_000);
  assert.equal(world.server.sessions.size, 1);
  user = 'bob';
  // The token is asked for again before its minute is over.
  world.pass(120_000);
  const subs = [...world.server.sessions].map(({ token }) =>
    JSON.parse(Buffer.from(token.split('.')[1], 'base64url')).sub);
  assert.deepEqual(subs.sort(), ['ann', 'bob']);
  assert.ok(leader.states.includes('reconnecting other_user') && other.halley.state === 'open');
}));

test('a callback that gives no token is asked again, and the page is told', inWorld((world) => {
  let asked = 0;
  const page = world.open({
    user: undefined,
    token: () => ((asked += 1) === 3 ? new Promise(() => {}) : tokenOf('ann', asked)),
  });
  world.pass(120_000);
  assert.ok(asked > 3, `${asked}`);
  assert.ok(page.states.includes('open token_callback'), `${page.states}`);
}));

test('a clock that is set back by an hour holds up nothing', inWorld((world) => {
  world.server.down();
  const page = world.open();
  world.pass(10_000);
  world.setMs = -3_600_000;
  world.server.up();
  world.pass(25_000);
  assert.equal(page.halley.state, 'open');
}));

test('a request that hangs is made again', inWorld((world) => {
  const page = world.open({ transports: ['sse'] });
  world.pass(2_000);
  const done = world.ends(page, (halley) => halley.publish('a', 1));
  for (const wire of world.network.wires) if (!wire.session) wire.isStalled = true;
  world.pass(29_000);
  assert.equal(done.is, 'done');
  assert.equal(world.server.log.length, 1);
}));

/** A hundred subjects of a hundred bytes: as many as are allowed, more than an address holds. */
const MANY = Array.from({ length: 100 }, (_, n) => `${n}`.padStart(100, 'x'));

/** What a page is told that opens a connection, or comes back after a cut, in a browser. */
const isUsual = (state) =>
  ['connecting', 'connecting leader', 'open', 'reconnecting', 'reconnecting closed',
    'reconnecting unreachable'].includes(state);

/** The page has what is published about each, once and in order, also after a cut. */
function hasAll(world, page) {
  const before = page.shown.length;
  const published = [];
  const say = () => {
    for (const one of MANY) published.push(world.server.publish(one).event.data);
  };
  say();
  world.pass(3_000);
  world.network.cutAll();
  say();
  world.pass(20_000);
  say();
  world.pass(3_000);
  assert.deepEqual(page.shown.slice(before), published);
}

for (const name of ['websocket', 'sse', 'ndjson', 'poll']) {
  test(`100 subjects of 100 bytes, named at first: ${name}`, inWorld((world) => {
    const page = world.open({ transports: [name], subjects: MANY });
    world.pass(3_000);
    hasAll(world, page);
    assert.ok(page.states.every(isUsual), `${page.states}`);
  }));
}

test('100 subjects of 100 bytes, in band: the first message of a WebSocket brings them back',
  inWorld((world) => {
    const page = world.open();
    world.pass(2_000);
    const ends = MANY.map((one) => world.ends(page, (halley) => halley.subscribe(one)));
    world.pass(10_000);
    assert.ok(ends.every(({ is }) => is === 'done'));
    assert.equal(page.halley.transport, 'websocket');
    hasAll(world, page);
    assert.equal(page.halley.transport, 'websocket');
  }));

test('100 subjects of 100 bytes, one after the other: SSE', inWorld((world) => {
  const page = world.open({ transports: ['sse'] });
  world.pass(2_000);
  const ends = MANY.map((one) => world.ends(page, (halley) => halley.subscribe(one)));
  world.pass(29_000);
  assert.ok(ends.every(({ is }) => is === 'done'), `${ends.map(({ is }) => is)}`);
  hasAll(world, page);
}));

test('a first message that is refused says why', inWorld((world) => {
  world.server.most = 50;
  const page = world.open({ transports: ['websocket'], subjects: MANY });
  world.pass(3_000);
  assert.equal(page.states.at(-1), 'closed too_many_subscriptions');
}));

test('an id stands in the query, as proxies decode it in a path', inWorld((world) => {
  const page = world.open({ transports: ['sse'] });
  world.pass(2_000);
  world.ends(page, (halley) => halley.follow('room/7'));
  world.ends(page, (halley) => halley.unfollow('room 7'));
  world.ends(page, (halley) => halley.presence('ann/1'));
  world.pass(1_000);
  assert.deepEqual(page.asked.slice(-3),
    ['PUT /v1/me/follows', 'DELETE /v1/me/follows', 'GET /v1/me/presence']);
  assert.ok(world.server.follows.has('room/7'));
}));

test('without a transport the client closes and says so', inWorld((world) => {
  const page = world.open({ transports: ['carrier pigeon'] });
  world.pass(1_000);
  assert.deepEqual(page.states, ['connecting', 'closed no_transport']);
  assert.deepEqual(world.browser.thrown, []);
}));

test('a name that can\'t be written in an address is refused by the promise', inWorld((world) => {
  const page = world.open();
  world.pass(1_000);
  const ends = [(halley) => halley.presence('\ud800'), (halley) => halley.follow('\ud800/')]
    .map((ask) => world.ends(page, ask));
  world.pass(1_000);
  assert.notEqual(ends[0].is, 'done');
  assert.deepEqual(world.browser.thrown, []);
}));
