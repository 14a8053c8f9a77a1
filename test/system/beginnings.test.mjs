// A session's cursor is right from its first byte, however it begins (protocol/http.md 10.2, 25.2):
// a client that breaks off and comes back with the last cursor that it read gets the events that it
// hadn't got yet, and those published since it began. Nothing older, nothing twice, nothing
// missing.

import assert from 'node:assert/strict';
import { before } from 'node:test';
import { follow, publish } from '../lib/client.mjs';
import { start, test } from '../lib/halley.mjs';
import { ask, open, poll } from '../lib/streams.mjs';
import { until } from '../lib/wait.mjs';
import { endAfter } from '../lib/world.mjs';

let halley;
before(async () => { halley = await start(); });
endAfter(() => [halley]);

const LAST = 3;
const NEWEST = ['room 3', 'room 4', 'room 5'];
const data = (events) => events.map((event) => event.data);
let worlds = 0;

/** A room, a subject that the user follows and another one, each with a past. */
async function world(isEmpty) {
  worlds += 1;
  const [user, room, followed, other] = ['user', 'room', 'followed', 'other']
    .map((name) => `${name}-${worlds}`);
  await follow(halley, [user, followed]);
  for (let n = 1; n <= 5; n += 1) {
    await publish(halley, followed, `followed ${n}`);
    if (!isEmpty) await publish(halley, room, `room ${n}`);
    await publish(halley, other, `other ${n}`);
  }
  await publish(halley, followed, 'followed 6');
  await publish(halley, other, 'other 6');
  return { user, room, followed, other };
}

const published = (some) => Promise.all(some.map(([subject, value]) =>
  publish(halley, subject, value)));

/** Comes back with the cursor, and insists on exactly these events. */
async function back(opening, { user, room, followed, other }, cursor, wanted, what) {
  const subjects = [room, other].join();
  await published([[followed, 'new'], [room, 'new'], [other, 'new']]);
  const stream = await opening(halley, { user, subjects, last: LAST }, {}, cursor);
  const seen = data(await stream.events.take(wanted.length + 3, what));
  await publish(halley, followed, 'the end');
  seen.push((await stream.event(`${what}: the end`)).data);
  assert.deepEqual(seen.slice(0, wanted.length), wanted, what);
  assert.deepEqual(seen.slice(wanted.length), ['new', 'new', 'new', 'the end'], what);
  stream.close();
}

for (const transport of ['sse', 'ndjson', 'ws']) {
  const opening = open[transport];

  for (const had of [0, 1, 2, 3]) {
    test(`25.2 ${transport}, last: breaks off behind its welcome and ${had} events`, async () => {
      const here = await world();
      const query = { user: here.user, subjects: here.room, last: LAST };
      const stream = await opening(halley, query);
      assert.deepEqual(data(await stream.events.take(LAST)), NEWEST);
      const cursor = stream.cursors[had];
      stream.close();
      const { room, other } = here;
      // A subject that is said only now counts from the cursor: behind the last of the newest that
      // is where the session began. Before, it is in the same beginning.
      const added = had === LAST ? here : { ...here, other: `${other}-new` };
      await back(opening, added, cursor, NEWEST.slice(had), `${room} behind ${had}`);
    });
  }

  test(`25.2 ${transport}, last: nothing was there`, async () => {
    const here = await world('empty');
    const query = { user: here.user, subjects: here.room, last: LAST };
    const stream = await opening(halley, query);
    await until('the welcome, and where it is behind nothing', () => stream.cursors.length >= 2);
    const [welcome, behind] = stream.cursors;
    stream.close();
    await back(opening, here, behind, [], 'behind nothing');
    const later = await world('empty');
    const second = await opening(halley, { ...query, user: later.user, subjects: later.room });
    await second.place();
    const [first] = second.cursors;
    second.close();
    assert.notEqual(welcome, behind);
    await back(opening, { ...later, other: `${later.other}-new` }, first, [], 'its welcome');
  });

  test(`10.2 ${transport}, live: breaks off behind its welcome`, async () => {
    const here = await world();
    const stream = await opening(halley, { user: here.user, subjects: here.room });
    await stream.place();
    const [welcome] = stream.cursors;
    stream.close();
    await back(opening, here, welcome, [], 'live');
  });

  test(`10.2 ${transport}, cursor: breaks off behind each event that it had`, async () => {
    const here = await world();
    const { cursor } = await poll(halley, here.user, { timeout: 0 });
    await publish(halley, here.followed, 'missed 1');
    await publish(halley, here.room, 'missed 2');
    const stream = await opening(halley, { user: here.user, subjects: here.room }, {}, cursor);
    assert.deepEqual(data(await stream.events.take(2)), ['missed 1', 'missed 2']);
    const cursors = [cursor, ...stream.cursors];
    stream.close();
    await back(opening, here, cursors[2], [], 'behind both');
  });
}

test('25.2 poll, last: the answer has where the session began', async () => {
  for (const isEmpty of [false, true]) {
    const here = await world(isEmpty);
    const query = { user: here.user, subjects: here.room, last: LAST };
    const first = await poll(halley, query, { timeout: 0 });
    assert.deepEqual(data(first.events), isEmpty ? [] : NEWEST);
    await back(open.sse, here, first.cursor, [], 'behind a poll');
    await published([[here.room, 'newer'], [here.followed, 'newer']]);
    const next = await poll(halley, query, { cursor: first.cursor, timeout: 0 });
    assert.deepEqual(data(next.events).sort(), ['new', 'new', 'newer', 'newer', 'the end']);
  }
});

test('25.4 ws, subscribe with last: the session\'s cursor is what it was', async () => {
  const here = await world();
  const stream = await open.ws(halley, here.user);
  await stream.place();
  await publish(halley, here.followed, 'live');
  assert.equal((await stream.event()).data, 'live');
  const { ok } = await ask(stream, { op: 'subscribe', subject: here.room, last: LAST });
  assert.deepEqual(data(ok.events), NEWEST);
  const { cursor } = stream;
  stream.close();
  await back(open.ws, here, cursor, [], 'behind subscribe');
});
