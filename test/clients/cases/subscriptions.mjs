// http.md 21: a client names its subscriptions with each opening, since the server forgets it; a
// WebSocket changes it in band, another transport by a new opening with the cursor.

import assert from 'node:assert/strict';
import { STREAMS, event, shows } from '../lib/story.mjs';

/** The next stream. A client may ask before, by a poll that waits for nothing, whether it may. */
async function stream(server) {
  for (;;) {
    const visit = await server.visit();
    if (visit.transport !== 'poll') return visit;
    assert.equal(visit.timeout, '0', 'a poll that only asks waits for nothing');
    visit.poll({ cursor: 'nobody-goes-on-from-here' });
  }
}

const subscriptions = (server) => server.operations.map(({ op, subject }) => [op, subject]);

/**
 * `subscribe` or `unsubscribe`, as a client without a way back does it: by another stream. It is
 * done when that is there, or before where nobody would miss anything.
 */
async function anew(server, client, command) {
  const done = client.ask(command);
  const visit = await stream(server);
  visit.welcome(visit.cursor);
  assert.equal((await done).error, undefined);
  return visit;
}

const SUBJECTS = ['room/7', 'a,b', 'zpráva+&='];

const said = (transport) => ({
  name: `its subjects are said with each opening, also after a cut (${transport})`,
  run: async ({ server, client }) => {
    client.say({ do: 'connect', url: server.url, user: 'bob', transports: [transport],
      subjects: SUBJECTS });
    const one = await stream(server);
    assert.deepEqual(one.subjects, SUBJECTS);
    one.welcome('c0').event('c1', event('e1'));
    await shows(client, ['e1']);
    await one.cut();
    const two = await stream(server);
    assert.deepEqual([two.cursor, two.subjects], ['c1', SUBJECTS]);
    two.welcome('c1').event('c2', event('e2'));
    await shows(client, ['e1', 'e2']);
  },
});

/** A hundred of a hundred bytes: more than an address holds (http.md 28.2). */
const MANY = Array.from({ length: 100 }, (_, n) => `${n}`.padStart(100, 'room/'));
/** Some proxies take no longer address. */
const ADDRESS_MAX = 4_300;

const many = (transport) => ({
  name: `more subjects than an address holds: a form, also after a cut (${transport})`,
  run: async ({ server, client }) => {
    client.say({ do: 'connect', url: server.url, user: 'bob', transports: [transport],
      subjects: MANY });
    for (const [from, to, id] of [[null, 'c1', 'e1'], ['c1', 'c2', 'e2']]) {
      const visit = await server.visit();
      assert.equal(visit.transport, transport);
      assert.deepEqual([visit.cursor, visit.subjects], [from, MANY]);
      assert.ok(visit.address.length < ADDRESS_MAX, `${visit.address.length} bytes`);
      if (transport === 'poll') visit.poll({ events: [event(id)], cursor: to });
      else {
        visit.welcome(from ?? 'c0').event(to, event(id));
        await visit.cut();
      }
    }
    await shows(client, ['e1', 'e2']);
  },
});

const changed = (transport) => ({
  name: `subscribe and unsubscribe: a new stream from the cursor (with ${transport})`,
  run: async ({ server, client }) => {
    client.say({ do: 'connect', url: server.url, user: 'bob', transports: [transport],
      subjects: ['one'] });
    (await stream(server)).welcome('c0').event('c1', event('e1'));
    await shows(client, ['e1']);
    const two = await anew(server, client, { do: 'subscribe', subject: 'two' });
    assert.deepEqual([two.cursor, two.subjects], ['c1', ['one', 'two']]);
    two.event('c2', event('e2'));
    await shows(client, ['e1', 'e2']);
    const three = await anew(server, client, { do: 'unsubscribe', subject: 'one' });
    assert.deepEqual([three.cursor, three.subjects], ['c2', ['two']]);
    three.event('c3', event('e3'));
    await shows(client, ['e1', 'e2', 'e3']);
    assert.ok(!client.states.includes('closed'));
  },
});

const refusedBefore = (transport) => ({
  name: `a subscription that is refused ends nothing (with ${transport})`,
  run: async ({ server, client }) => {
    client.say({ do: 'connect', url: server.url, user: 'bob', transports: [transport] });
    const one = await stream(server);
    one.welcome('c0').event('c1', event('e1'));
    await shows(client, ['e1']);
    const done = client.ask({ do: 'subscribe', subject: 'theirs' });
    const asks = await server.visit();
    assert.deepEqual([asks.transport, asks.timeout, asks.subjects], ['poll', '0', ['theirs']]);
    asks.refuse(403, 'right_missing');
    assert.equal((await done).error, 'right_missing');
    one.event('c2', event('e2'));
    await shows(client, ['e1', 'e2']);
    await one.cut();
    assert.deepEqual((await stream(server)).subjects, [], 'what was refused is not said');
  },
});

async function inBand({ server, client }) {
  const one = await stream(server);
  one.welcome('c0').event('c1', event('e1'));
  await shows(client, ['e1']);
  for (const subject of ['one', 'two']) {
    assert.equal((await client.ask({ do: 'subscribe', subject })).error, undefined);
  }
  await client.ask({ do: 'unsubscribe', subject: 'one' });
  assert.deepEqual(subscriptions(server),
    [['subscribe', 'one'], ['subscribe', 'two'], ['unsubscribe', 'one']]);
  assert.equal(server.visits.length, 1, 'without another connection');
  await one.cut();
  const two = await stream(server);
  assert.deepEqual([two.cursor, two.subjects], ['c1', ['two']], 'the next opening says the rest');
}

async function refused({ server, client }) {
  const one = await stream(server);
  one.welcome('c0').event('c1', event('e1'));
  await shows(client, ['e1']);
  server.answer = ({ subject }) => (subject === 'yours' ? { ok: { added: 1, already: 0 } }
    : { error: 'right_missing', status: 403 });
  assert.equal((await client.ask({ do: 'subscribe', subject: 'theirs' })).error, 'right_missing');
  assert.equal((await client.ask({ do: 'subscribe', subject: 'yours' })).error, undefined);
  await one.cut();
  assert.deepEqual((await stream(server)).subjects, ['yours'], 'what was refused is not said');
}

/** Whichever way it is said again: with the opening, or in band once more. */
async function cutBefore({ server, client }) {
  const one = await stream(server);
  one.welcome('c0').event('c1', event('e1'));
  await shows(client, ['e1']);
  let times = 0;
  server.answer = () => ((times += 1) === 1 ? null : { ok: { added: 1, already: 0 } });
  const done = client.ask({ do: 'subscribe', subject: 'late' });
  const two = await stream(server);
  two.welcome('c1').event('c2', event('e2'));
  assert.equal((await done).error, undefined);
  await shows(client, ['e1', 'e2']);
  assert.ok(two.subjects.includes('late') || times > 1, 'it was said again');
  await two.cut();
  assert.deepEqual((await stream(server)).subjects, ['late']);
}

/** http.md 21.9: a right that ended with a token, or what a server has ended. */
async function ended({ server, client }) {
  const one = await stream(server);
  one.welcome('c0').event('c1', event('e1'));
  await shows(client, ['e1']);
  server.answer = () => ({ ok: { added: 1, already: 0 } });
  for (const subject of ['theirs', 'yours']) await client.ask({ do: 'subscribe', subject });
  await client.ask({ do: 'watch', subject: 'theirs' });
  one.message({ ended: { reason: 'right_missing', subjects: ['theirs'], presence: ['theirs'] } })
    .event('c2', event('e2'));
  await shows(client, ['e1', 'e2']);
  await one.cut();
  const two = await stream(server);
  assert.deepEqual([two.subjects, two.presence], [['yours'], []], 'what has ended is not said');
  two.welcome('c2');
  assert.equal((await client.ask({ do: 'subscribe', subject: 'theirs' })).error, undefined);
  assert.deepEqual(subscriptions(server).at(-1), ['subscribe', 'theirs'], 'until it is asked anew');
  assert.ok(!client.states.includes('closed'));
}

const stories = {
  'what the server has ended is not said again': ended,
  'subscribe and unsubscribe: in band': inBand,
  'a subscription that is refused in band is told so, and forgotten': refused,
  'a subscription that is cut before its answer is said again': cutBefore,
};

const WITHOUT_WAY_BACK = STREAMS.filter((transport) => transport !== 'websocket');

export const cases = [
  ...STREAMS.map(said),
  ...[...STREAMS, 'poll'].map(many),
  ...WITHOUT_WAY_BACK.map(changed),
  ...WITHOUT_WAY_BACK.map(refusedBefore),
  ...Object.entries(stories).map(([name, body]) => ({
    name: `${name} (with websocket)`,
    run: async ({ server, client }) => {
      client.say({ do: 'connect', url: server.url, user: 'bob', transports: ['websocket'] });
      await body({ server, client });
    },
  })),
  {
    name: 'polls say its subjects (with poll)',
    run: async ({ server, client }) => {
      client.say({ do: 'connect', url: server.url, user: 'bob', transports: ['poll'],
        subjects: SUBJECTS });
      for (const cursor of ['c1', 'c2']) {
        const visit = await server.visit();
        assert.deepEqual(visit.subjects, SUBJECTS);
        visit.poll({ events: [event(cursor)], cursor });
      }
      await shows(client, ['c1', 'c2']);
    },
  },
];
