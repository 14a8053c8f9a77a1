// The client in Node against a real Halley: each transport alone, faults, tokens, operations.

import assert from 'node:assert/strict';
import { after, before } from 'node:test';
import { api, follow, publish, sessionsOf } from '../../../test/lib/client.mjs';
import { kill, start, test } from '../../../test/lib/halley.mjs';
import { until } from '../../../test/lib/wait.mjs';
import { client, proxy, reaches } from './lib/world.mjs';

const TRANSPORTS = ['websocket', 'sse', 'ndjson', 'poll'];

let halley;
before(async () => { halley = await start(); });
after(() => halley?.stop());

/** A client that is there. */
async function opened(options, url = halley.publicUrl) {
  const one = client(url, options);
  await reaches(one, 'open');
  return one;
}

for (const transport of TRANSPORTS) {
  const only = { transports: [transport] };

  test(`${transport}: events come whole, in order, and to their subject's handlers`, async () => {
    const user = `order-${transport}`;
    const one = await opened({ user, ...only });
    assert.equal(one.halley.transport, transport);
    await follow(halley, [user, 'news']);
    const news = [];
    one.halley.on('news', ({ data }) => news.push(data));
    const sent = [{ text: 'Žluťoučký 🐎\n\u2028' }, null, 0, [1, { a: 'x'.repeat(40_000) }]];
    for (const data of sent) await publish(halley, 'news', data);
    await publish(halley, user, 'own');
    const items = await one.items.take(5);
    assert.deepEqual(items.map(({ subject }) => subject), [...Array(4).fill('news'), user]);
    assert.deepEqual(news, sent);
    assert.deepEqual(Object.keys(items[0]).sort(), ['at', 'data', 'id', 'subject']);
    one.halley.close();
    await until('no session', async () => await sessionsOf(halley, user) === 0);
  });

  test(`${transport}: a private event comes to its users alone, and from one`, async () => {
    const user = `private-${transport}`;
    const one = await opened({ user, ...only });
    await follow(halley, [user, 'eve']);
    const { id } = await one.halley.publish(['eve', user], 'between us');
    await one.halley.publish(['eve'], 'not for you');
    await publish(halley, 'eve', 'for all');
    const items = await one.items.take(2);
    assert.deepEqual(items.map(({ data }) => data), ['between us', 'for all']);
    assert.deepEqual({ ...items[0], at: 0 }, { id, private: true, at: 0, data: 'between us' });
    one.halley.close();
  });

  test(`${transport}: who comes back and has missed nothing is open at once`, async () => {
    const user = `back-${transport}`;
    const one = await opened({ user, ...only });
    await publish(halley, user, 1);
    await one.items.take(1);
    one.halley.close();
    const again = await opened({ user, cursor: one.halley.cursor, ...only });
    assert.deepEqual(again.reasons, [], 'it waited for a welcome that never comes');
  });

  test(`${transport}: what was published while it was away comes, once and in order`, async () => {
    const user = `away-${transport}`;
    const way = await proxy(halley.publicPort, () => undefined);
    const one = await opened({ user, ...only }, way.url);
    let n = 0;
    for (let round = 0; round < 3; round += 1) {
      for (const end = n + 5; n < end; n += 1) await publish(halley, user, n);
      way.cut();
      for (const end = n + 5; n < end; n += 1) await publish(halley, user, n);
      const items = await one.items.take(10);
      assert.deepEqual(items.map(({ data }) => data), Array.from({ length: 10 }, (_, at) =>
        n - 10 + at));
    }
    await one.items.none();
    one.halley.close();
    way.close();
  });

  test(`${transport}: a client that is made later goes on from the cursor`, async () => {
    const user = `cursor-${transport}`;
    const one = await opened({ user, ...only });
    await publish(halley, user, 1);
    await one.items.next();
    one.halley.close();
    await publish(halley, user, 2);
    const other = client(halley.publicUrl, { user, ...only, cursor: one.halley.cursor });
    assert.equal((await other.items.next()).data, 2);
    other.halley.close();
  });

  test(`${transport}: a gap is told before what comes behind it`, async () => {
    const user = `gap-${transport}`;
    const one = client(halley.publicUrl, { user, ...only, cursor: 'of-nobody' });
    const { gap } = await one.items.next();
    assert.deepEqual([gap.from, typeof gap.to, gap.reason], [null, 'number', 'malformed']);
    await publish(halley, user, 1);
    assert.equal((await one.items.next()).data, 1);
    one.halley.close();
  });

  test(`${transport}: what it is subscribed to comes without a follow, also after cuts`,
    async () => {
      const [user, rooms] = [`looks-${transport}`, ['a,b', 'ž/7', 'third'].map((room) =>
        `${room} ${transport}`)];
      const way = await proxy(halley.publicPort, () => undefined);
      const one = await opened({ user, subjects: rooms.slice(0, 1), ...only }, way.url);
      await Promise.all(rooms.slice(1).map((room) => one.halley.subscribe(room)));
      let n = 0;
      const say = async (subjects) => {
        for (const subject of subjects) await publish(halley, subject, n += 1);
      };
      const has = async (...expected) => {
        const items = await one.items.take(expected.length);
        assert.deepEqual(items.map(({ data }) => data).sort((a, b) => a - b), expected);
      };
      await say([...rooms, user]);
      way.cut();
      await say([...rooms, user]);
      await has(1, 2, 3, 4, 5, 6, 7, 8);
      await one.halley.unsubscribe(rooms[0]);
      await one.halley.unsubscribe('never was there');
      await say(rooms);
      way.cut();
      await say([...rooms, user]);
      await has(10, 11, 13, 14, 15);
      await one.items.none();
      assert.deepEqual(await one.halley.following(), { following: [], next: null });
      await assert.rejects(one.halley.subscribe('x'.repeat(256)), { code: 'bad_subject' });
      assert.equal(one.halley.state, 'open', 'a refusal is told, and ends nothing');
      one.halley.close();
      way.close();
    });

  test(`${transport}: the newest to begin with, and an event about several subjects`, async () => {
    const [user, one, two] = ['last', 'one', 'two'].map((name) => `${name}-${transport}`);
    for (const n of [1, 2, 3]) await publish(halley, one, n);
    const { halley: made, items } = await opened({ user, subjects: [one, two], last: 2, ...only });
    const heard = [];
    for (const subject of [one, two]) made.on(subject, ({ data }) => heard.push([subject, data]));
    assert.deepEqual((await items.take(2)).map(({ data }) => data), [2, 3]);
    await made.publish({ subjects: [one, two] }, 'both');
    const event = await items.next();
    await made.publish(one, 'kept', { keep: true });
    const { json } = await api(halley, 'GET', `/v1/subjects/${one}/events?limit=1`);
    assert.equal(json.kept.data, 'kept');
    assert.deepEqual([event.subject, event.subjects], [undefined, [one, two]]);
    assert.deepEqual(heard.filter(([, data]) => data === 'both'), [[one, 'both'], [two, 'both']]);
    made.close();
  });

  test(`${transport}: who began with the newest, and has no subjects left, goes on`, async () => {
    const [user, room] = [`left-${transport}`, `left-room-${transport}`];
    const way = await proxy(halley.publicPort, () => undefined);
    await publish(halley, room, 1);
    const one = await opened({ user, subjects: [room], last: 2, ...only }, way.url);
    assert.equal((await one.items.next()).data, 1);
    await one.halley.unsubscribe(room);
    way.cut();
    await publish(halley, user, 2);
    assert.equal((await one.items.next()).data, 2);
    assert.ok(!one.reasons.includes('bad_last'), `${one.reasons}`);
    one.halley.close();
    way.close();
  });

  test(`${transport}: publish, follow and unfollow are answered`, async () => {
    const user = `doer-${transport}`;
    const one = client(halley.publicUrl, { user, ...only });
    // Before it is open: they wait for it.
    assert.deepEqual(await one.halley.follow('room'), { added: 1, already: 0 });
    assert.deepEqual(await one.halley.follow('room'), { added: 0, already: 1 });
    const { id } = await one.halley.publish('room', { n: 1 }, { id: 'mine' });
    assert.equal(id, `me:${user}:mine`);
    assert.equal((await one.halley.publish('room', { n: 2 }, { id: 'mine' })).id, id);
    assert.deepEqual((await one.items.next()).data, { n: 1 });
    assert.deepEqual(await one.halley.following(), { following: ['room'], next: null });
    // Between two polls it isn't.
    const there = await until('it is there', async () => {
      const what = await one.halley.presence(user);
      return what.online && what;
    });
    assert.deepEqual(there, { user, online: true });
    assert.deepEqual(await one.halley.unfollow('room'), { removed: 1, absent: 0 });
    await one.halley.publish('room', 3);
    await one.items.none();
    for (const act of [() => one.halley.unfollow(user), () => one.halley.follow(''),
      () => one.halley.publish('', 1), () => one.halley.publish('room', undefined)]) {
      await assert.rejects(act, (error) => {
        assert.match(error.code, /^(self|bad_subject|bad_event|bad_operation)$/);
        assert.ok(error.message.length > 10);
        return true;
      });
    }
    one.halley.close();
    await assert.rejects(one.halley.follow('room'), { code: 'closed' });
  });
}

test('a hundred operations at once are all done, and events between them come', async () => {
  const one = await opened({ user: 'many' });
  const done = await Promise.all(Array.from({ length: 100 }, (_, n) =>
    one.halley.publish('many', n)));
  assert.equal(new Set(done.map(({ id }) => id)).size, 100);
  const items = await one.items.take(100);
  assert.deepEqual(items.map(({ data }) => data), Array.from({ length: 100 }, (_, n) => n));
  one.halley.close();
});

test('for await: events and gaps in order, of one subject if asked; close ends it', async () => {
  const one = client(halley.publicUrl, { user: 'loop', cursor: 'of-nobody' });
  const [all, news] = [one.halley.events(), one.halley.events('news')];
  await follow(halley, ['loop', 'news']);
  // Up to where it says: what is published before it is told is in the gap.
  assert.equal((await one.items.next()).gap.reason, 'malformed');
  await publish(halley, 'loop', 1);
  await publish(halley, 'news', 2);
  const seen = [];
  for await (const item of all) {
    seen.push(item.gap ? item.gap.reason : item.data);
    if (item.data === 2) break;
  }
  assert.deepEqual(seen, ['malformed', 1, 2]);
  assert.equal((await news.next()).value.gap.reason, 'malformed');
  assert.equal((await news.next()).value.data, 2);
  const last = [news.next(), news.next()];
  one.halley.close();
  assert.deepEqual((await Promise.all(last)).map(({ done }) => done), [true, true]);
});

test('a handler that throws is told of, and takes nothing from the others', async () => {
  const one = await opened({ user: 'thrower' });
  const { error } = console;
  const told = [];
  console.error = (what) => told.push(what.message);
  try {
    const off = one.halley.on('thrower', () => { throw new Error('a fault of the page'); });
    await publish(halley, 'thrower', 1);
    await one.items.next();
    off();
    await publish(halley, 'thrower', 2);
    assert.equal((await one.items.next()).data, 2);
  } finally {
    console.error = error;
  }
  assert.deepEqual(told, ['a fault of the page']);
  one.halley.close();
});

test('a refusal that waiting doesn\'t change closes the client, and says why', async () => {
  const one = client(halley.publicUrl, { transports: ['sse'] });
  await reaches(one, 'closed');
  assert.deepEqual(one.reasons, ['user_missing']);
});

for (const transport of TRANSPORTS) {
  test(`${transport}: a killed edge loses nothing, and nothing is shown twice`,
    async () => {
      const user = `faults-${transport}`;
      const one = await opened({ user, transports: [transport] });
      const since = one.items;
      const published = [];
      const say = async (n) => {
        await until('published', () => publish(halley, user, n, { id: `${user}-${n}` }));
        published.push(n);
      };
      for (let n = 0; n < 5; n += 1) await say(n);
      kill(halley.edgePid(), 'SIGKILL');
      for (let n = 5; n < 10; n += 1) await say(n);
      await since.take(10).then((items) =>
        assert.deepEqual(items.map(({ data }) => data), published));
      await until('it is back', () => one.halley.state === 'open');
      await since.none();
      one.halley.close();
    });
}

test('a killed brain: the connection stays, what is published meanwhile is done when it is back',
  async () => {
    const one = await opened({ user: 'brain' });
    await halley.killBrain();
    const done = [1, 2, 3].map((n) => one.halley.publish('brain', n));
    halley.spawn();
    await halley.ready();
    assert.equal((await Promise.all(done)).length, 3);
    const items = await one.items.take(3);
    assert.deepEqual(items.map(({ data }) => data).sort(), [1, 2, 3]);
    await one.items.none();
    assert.deepEqual(one.reasons, []);
    one.halley.close();
  });
