// protocol/http.md 10 and delivery.md, "the promise": a client that comes back with a cursor gets
// the missed events, then the new ones, with none lost and none twice.

import assert from 'node:assert/strict';
import { after, before } from 'node:test';
import { openBrowser } from '../lib/browser.mjs';
import { follow, http, publish, sessionsOf, unfollow } from '../lib/client.mjs';
import { assertError } from '../lib/expect.mjs';
import { kill, start, test } from '../lib/halley.mjs';
import { closeStreams, live, ndjson, open, poll, sse } from '../lib/streams.mjs';
import { sleep, until } from '../lib/wait.mjs';

let halley;
before(async () => { halley = await start(); });
after(async () => {
  closeStreams();
  await halley?.stop();
});

const data = (events) => events.map((event) => event.data);
const numbers = (from, to) => Array.from({ length: to - from + 1 }, (_, n) => from + n);

async function publishAll(subject, from, to) {
  for (const n of numbers(from, to)) await publish(halley, subject, n);
}

/** A cursor of now. */
const now = async (user) => (await poll(halley, user, { timeout: 0 })).cursor;

test('10.1, 7.3 SSE: the welcome has an id, each event has one, and they are opaque text',
  async () => {
  const stream = await sse(halley, 'ann');
  const seen = [await stream.place()];
  for (const n of [1, 2, 3]) {
    await publish(halley, 'ann', n);
    await stream.event();
    seen.push(stream.cursor);
  }
  for (const cursor of seen) assert.match(cursor, /^[A-Za-z0-9_-]{1,255}$/);
  assert.equal(new Set(seen).size, 4, 'a cursor moves with each event');
  stream.close();
});

test('7.4, 9.6 NDJSON and WebSocket: the cursor is the first member of every event', async () => {
  for (const opening of Object.values({ ...live, sse: undefined }).filter(Boolean)) {
    const stream = await opening(halley, 'bob');
    assert.match(await stream.place(), /^[A-Za-z0-9_-]+$/);
    await publish(halley, 'bob', 1);
    const event = await stream.event();
    assert.equal(Object.keys(event)[0], 'cursor');
    assert.match(event.cursor, /^[A-Za-z0-9_-]+$/);
    stream.close();
  }
});

for (const from of Object.keys(open)) {
  test(`a cursor from ${from} is good for every transport`, async () => {
    for (const to of Object.keys(open)) {
      const user = `${from}-to-${to}`;
      const before = await open[from](halley, user);
      await publish(halley, user, 'seen');
      assert.deepEqual(data(await before.events.take(1)), ['seen']);
      const cursor = from === 'poll'
        ? await until('the answer', () => before.cursor) : await before.place();
      before.close();
      await publishAll(user, 1, 3);
      const after = await open[to](halley, user, {}, cursor);
      assert.deepEqual(data(await after.events.take(3, `${from} to ${to}`)), [1, 2, 3]);
      await publish(halley, user, 'live');
      assert.deepEqual(data(await after.events.take(1)), ['live']);
      await after.quiet(`${from} to ${to}: a second copy`, 30);
      after.close();
    }
  });
}

test('10.1 Last-Event-ID does the same; it goes before the parameter; an empty one is none',
  async () => {
  const early = await now('cat');
  await publish(halley, 'cat', 1);
  const { cursor: late } = await poll(halley, 'cat', { cursor: early, timeout: 15 });
  const byHeader = await sse(halley, 'cat', { 'last-event-id': early });
  assert.deepEqual(data(await byHeader.events.take(1)), [1]);
  const both = await sse(halley, 'cat', { 'last-event-id': late }, early);
  await both.quiet('what the header has seen', 200);
  const empty = await sse(halley, 'cat', { 'last-event-id': '' }, '');
  await empty.quiet('history', 200);
  await empty.gaps.none('a gap');
  for (const stream of [byHeader, both, empty]) stream.close();
});

test('10.1 lastEventId, as other clients spell it, goes before the address\'s own cursor',
  async () => {
  const early = await now('lea');
  await publish(halley, 'lea', 1);
  const { cursor: late } = await poll(halley, 'lea', { cursor: early, timeout: 15 });
  for (const [name, opening] of Object.entries(live)) {
    for (const spelling of ['lastEventId', 'lastEventID', 'last_event_id', 'Last-Event-ID']) {
      const back = await opening(halley, { user: 'lea', [spelling]: early });
      assert.equal((await back.event(`${name} ${spelling}`)).data, 1);
      back.close();
    }
    const both = await opening(halley, { user: 'lea', lastEventId: late }, {}, early);
    const empty = await opening(halley, { user: 'lea', lastEventId: '' }, {}, early);
    assert.equal((await empty.event(`${name}: an empty one is none`)).data, 1);
    await both.quiet(`${name}: what lastEventId has seen`, 100);
    for (const stream of [both, empty]) stream.close();
  }
  const header = await sse(halley, { user: 'lea', lastEventId: early }, { 'last-event-id': late });
  await header.quiet('what the header has seen', 100);
  header.close();
  const polled = await poll(halley, { user: 'lea', lastEventId: early }, { timeout: 15 });
  assert.deepEqual(data(polled.events), [1]);
});

test('10.1 what seems to be a cursor and is none is refused', async () => {
  for (const path of ['/v1/stream', '/v1/poll', ...('ws' in live ? ['/v1/ws'] : [])]) {
    const headers = path === '/v1/ws' ? { connection: 'Upgrade', upgrade: 'websocket',
      'sec-websocket-version': 13, 'sec-websocket-key': 'dGhlIHNhbXBsZSBub25jZQ==' } : {};
    for (const [query, code] of [['since=5', 'unknown_cursor'], ['Cursor=x', 'unknown_cursor'],
      ['last-id=1', 'unknown_cursor'], ['lastEventId=a&last_event_id=b', 'duplicate_parameter']]) {
      const answer = await http('GET', `${halley.publicUrl}${path}?user=u&${query}`, { headers });
      assert.equal(assertError(answer, 400).code, code, `${path}?${query}`);
    }
  }
});

test('one cursor for all subjects, each in its order; follows of meanwhile count', async () => {
  await follow(halley, ['dan', 'tea'], ['dan', 'milk'], ['dan', 'left']);
  const cursor = await now('dan');
  for (const n of numbers(1, 50)) {
    for (const subject of ['tea', 'milk', 'dan', 'none-of-his']) {
      await publish(halley, subject, n);
    }
  }
  await publish(halley, 'left', 'before');
  await unfollow(halley, ['dan', 'left']);
  await publish(halley, 'left', 'after');
  const stream = await sse(halley, 'dan', {}, cursor);
  const events = await stream.events.take(151);
  await stream.quiet('more than what he followed', 100);
  for (const subject of ['tea', 'milk', 'dan']) {
    assert.deepEqual(data(events.filter((event) => event.subject === subject)), numbers(1, 50));
  }
  assert.deepEqual(data(events.filter((event) => event.subject === 'left')), ['before']);
  stream.close();
});

test('a cursor is no key: with that of another user nothing of the other comes', async () => {
  await follow(halley, ['eve', 'both'], ['eva', 'both'], ['eva', 'hers']);
  const stream = await sse(halley, 'eva');
  const cursor = await stream.place();
  stream.close();
  await publish(halley, 'hers', 'for eva alone');
  await publish(halley, 'eva', 'for eva alone');
  await publish(halley, 'both', 'for both');
  const eve = await sse(halley, 'eve', {}, cursor);
  assert.deepEqual(data(await eve.events.take(1)), ['for both']);
  await eve.quiet('an event for eva');
  eve.close();
});

test('10.4 a follow counts from when it was made, whatever the cursor', async () => {
  const cursor = await now('gil');
  await publish(halley, 'club', 'before');
  await follow(halley, ['gil', 'club']);
  await publish(halley, 'club', 'after');
  // A cursor of before the first event: the store's name, and zeros.
  const bytes = Buffer.from(cursor, 'base64url').fill(0, 5);
  for (const shown of [cursor, bytes.toString('base64url')]) {
    const stream = await sse(halley, 'gil', {}, shown);
    assert.deepEqual(data(await stream.events.take(1)), ['after']);
    await stream.quiet('an event from before the follow', 200);
    await stream.gaps.none('a gap');
    stream.close();
  }
});

test('two sessions of a user have each their own place', async () => {
  const [first, second] = [await sse(halley, 'fay'), await ndjson(halley, 'fay')];
  await publish(halley, 'fay', 1);
  await Promise.all([first.event(), second.event()]);
  const place = first.cursor;
  first.close();
  await publish(halley, 'fay', 2);
  assert.equal((await second.event()).data, 2);
  const again = await sse(halley, 'fay', {}, place);
  assert.deepEqual(data(await again.events.take(1)), [2]);
  await second.quiet('a copy on the other session', 50);
  for (const stream of [again, second]) stream.close();
});

test('3,000 missed events come in order, whole', async () => {
  const cursor = await now('gil');
  const lines = numbers(1, 3_000)
    .map((n) => `${JSON.stringify({ subject: 'gil', data: [n, 'x'.repeat(n % 500)] })}\n`);
  for (let from = 0; from < lines.length; from += 500) {
    const { status } = await fetch(`${halley.apiUrl}/v1/events`, { method: 'POST',
      headers: { 'content-type': 'application/x-ndjson' },
      body: lines.slice(from, from + 500).join('') });
    assert.equal(status, 200);
  }
  for (const [name, opening] of Object.entries(open)) {
    const stream = await opening(halley, 'gil', {}, cursor);
    const events = await stream.events.take(3_000, name);
    assert.deepEqual(events.map((event) => event.data[0]), numbers(1, 3_000), name);
    assert.equal(events.at(-1).data[1].length, 0);
    stream.close();
  }
});

test('coming and going while others publish at full speed: each event once, in order', async () => {
  await follow(halley, ['hal', 'fast']);
  const LAST = 4_000;
  const names = Object.keys(open);
  let cursor = await now('hal');
  const publishing = publishAll('fast', 1, LAST);
  let next = 1;
  const take = (event, round) => {
    assert.equal(event.data, next, `round ${round}, ${names[round % names.length]}`);
    next += 1;
  };
  for (let round = 0; next <= LAST; round += 1) {
    const stream = await open[names[round % names.length]](halley, 'hal', {}, cursor);
    const leaveAt = Date.now() + 150;
    while (next <= LAST && Date.now() < leaveAt) take(await stream.event(`event ${next}`), round);
    for (const event of stream.events.drain()) take(event, round);
    ({ cursor } = stream);
    stream.close();
  }
  await publishing;
  assert.equal(next, LAST + 1);
});

test('an idle stream: the heartbeat moves the cursor, so that it never grows old', async () => {
  // Of its own: so short a heartbeat leaves a client that is busy elsewhere little time to read.
  const brisk = await start({ settings: { HALLEY_STREAM_HEARTBEAT: '1s' } });
  const streams = await Promise.all(Object.values(live).map((opening) => opening(brisk, 'ida')));
  for (const stream of streams) {
    const first = await stream.place();
    await until('the cursor has moved', async () => {
      await publish(brisk, 'somebody-else', 1);
      return stream.cursor !== first;
    });
    await stream.quiet('an event', 10);
    stream.close();
  }
  await brisk.stop();
});

test('10.3 a cursor that is none: a gap says so, then live events', async () => {
  const bad = ['x', '-', 'AAAA', '%00', '💥', 'A'.repeat(5_000), '../../etc/passwd', '"}\r\nx: y'];
  for (const cursor of bad) {
    for (const [name, opening] of Object.entries(open)) {
      if (cursor.length > 1_000 && name === 'poll') continue;
      const stream = await opening(halley, 'jan', {}, cursor);
      const gap = await stream.gaps.next(`a gap for ${JSON.stringify(cursor)} by ${name}`);
      assert.equal(gap.reason, 'malformed');
      for (const time of [gap.from, gap.to]) assert.ok(time === null || Number.isInteger(time));
      await publish(halley, 'jan', 1);
      assert.equal((await stream.event()).data, 1);
      stream.close();
    }
  }
});

test('10.3 a cursor from another store: a gap, not somebody else\'s place', async () => {
  const other = await start();
  try {
    const cursor = (await poll(other, 'kim', { timeout: 0 })).cursor;
    const stream = await sse(halley, 'kim', {}, cursor);
    assert.equal((await stream.gaps.next()).reason, 'other_store');
    await publish(halley, 'kim', 1);
    assert.equal((await stream.event()).data, 1);
    stream.close();
  } finally {
    await other.stop();
  }
});

test('a bit of a cursor changed at any place: a gap or a place, never an error', async () => {
  const cursor = await now('lea');
  for (let at = 0; at < cursor.length; at += 3) {
    const other = cursor[at] === 'A' ? 'B' : 'A';
    const changed = cursor.slice(0, at) + other + cursor.slice(at + 1);
    const { status } = await poll(halley, 'lea', { cursor: changed, timeout: '0.05' });
    assert.equal(status, 200, changed);
  }
  await publish(halley, 'lea', 1);
  assert.deepEqual(data((await poll(halley, 'lea', { cursor })).events), [1]);
});

test('kill -9 of the brain, then of the edge: what was acknowledged comes with the cursor',
  async () => {
  await follow(halley, ['mia', 'news']);
  const cursor = await now('mia');
  await publishAll('news', 1, 20);
  await halley.killBrain();
  await halley.start();
  await publishAll('news', 21, 40);
  kill(halley.edgePid(), 'SIGKILL');
  await until('another edge', () => halley.edgePids().length === 1);
  await halley.ready();
  await publishAll('news', 41, 50);
  for (const opening of Object.values(open)) {
    const stream = await opening(halley, 'mia', {}, cursor);
    assert.deepEqual(data(await stream.events.take(50)), numbers(1, 50));
    stream.close();
  }
});

test('a live stream over a kill -9 of the brain: published meanwhile by retries, none missing',
  async () => {
  await follow(halley, ['nia', 'steady']);
  const stream = await sse(halley, 'nia');
  const publishing = (async () => {
    for (const n of numbers(1, 200)) {
      await until('the publish is acknowledged', () =>
        publish(halley, 'steady', n, { id: `steady-${n}` }), 60_000);
    }
  })();
  await sleep(100);
  await halley.killBrain();
  await halley.start();
  await publishing;
  const ids = new Set();
  while (ids.size < 200) ids.add((await stream.event(`event ${ids.size + 1}`)).data);
  assert.deepEqual([...ids], numbers(1, 200), 'first copies in order');
  assert.equal(stream.isClosed, undefined, 'the same connection');
  stream.close();
});

test('a browser\'s EventSource comes back by itself with its cursor and misses nothing',
  async () => {
  const browser = await openBrowser();
  try {
    const page = await browser.newPage();
    // Of the same origin, without streams of its own: a browser has six connections to a host.
    await page.goto(`${halley.publicUrl}/nothing-here`);
    await page.evaluate(() => {
      window.received = [];
      window.gaps = [];
      const listen = (url) => {
        const source = new EventSource(url);
        source.onmessage = (message) => window.received.push(JSON.parse(message.data).data);
        source.addEventListener('gap', (message) => window.gaps.push(JSON.parse(message.data)));
        return source;
      };
      window.source = listen('/v1/stream?user=web');
      window.bad = listen('/v1/stream?user=web-bad&cursor=nonsense');
    });
    await until('a gap event', () => page.evaluate(() => window.gaps.length === 1));
    assert.equal(await page.evaluate(() => window.gaps[0].gap.reason), 'malformed');
    await until('the session', async () => await sessionsOf(halley, 'web') === 1);
    await publish(halley, 'web', 1);
    await until('the first', () => page.evaluate(() => window.received.length === 1));
    kill(halley.edgePid(), 'SIGKILL');
    await until('another edge', () => halley.edgePids().length === 1);
    await halley.ready();
    await publish(halley, 'web', 2); // nobody is back yet: EventSource waits its `retry:`
    await until('it is back', async () => await sessionsOf(halley, 'web') === 1);
    await publish(halley, 'web', 3);
    await until('all three', () => page.evaluate(() => window.received.length >= 3));
    assert.deepEqual(await page.evaluate(() => window.received), [1, 2, 3]);
  } finally {
    await browser.close();
  }
});
