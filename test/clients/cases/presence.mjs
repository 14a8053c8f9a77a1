// http.md 22: a client with presence names it with each opening, hands on the messages, and counts
// none of them as an event. A poll gets no presence, and names none.

import assert from 'node:assert/strict';
import { STREAMS, event, shows } from '../lib/story.mjs';

const state = (subject, ...users) => ({ presence: { subject, online: users.length, users } });
const join = (subject, user) => ({ presence: { subject, user, state: 'join' } });

/** The next stream. A client may ask before, by a request, whether it may be told. */
async function stream(server) {
  for (;;) {
    const visit = await server.visit();
    if (visit.transport !== 'poll') return visit;
    visit.poll({ cursor: 'nobody-goes-on-from-here' });
  }
}

async function told(client, ...all) {
  await client.until(`what is told of presence: ${JSON.stringify(client.presence)}`,
    () => client.presence.length >= all.length);
  assert.deepEqual(client.presence, all.map(({ presence }) => presence));
}

const SUBJECTS = ['room/7', '*'];

const said = (transport) => ({
  name: `presence is asked for with each opening, also after a cut (${transport})`,
  run: async ({ server, client }) => {
    client.say({ do: 'connect', url: server.url, user: 'bob', transports: [transport],
      presence: SUBJECTS, subjects: ['live'] });
    const one = await stream(server);
    assert.deepEqual([one.presence, one.subjects], [SUBJECTS, ['live']]);
    one.welcome('c0').message(state('room/7', 'ann')).event('c1', event('e1'))
      .message(join('room/7', 'eve'));
    await told(client, state('room/7', 'ann'), join('room/7', 'eve'));
    assert.deepEqual(client.ids, ['e1'], 'it is no event');
    await one.cut();
    const two = await stream(server);
    assert.deepEqual([two.cursor, two.presence], ['c1', SUBJECTS], 'and has no cursor');
    two.welcome('c1').message(state('room/7', 'eve')).event('c2', event('e2'));
    await shows(client, ['e1', 'e2']);
    await told(client, state('room/7', 'ann'), join('room/7', 'eve'), state('room/7', 'eve'));
  },
});

const changed = (transport) => ({
  name: `watch and unwatch: a new stream from the cursor (with ${transport})`,
  run: async ({ server, client }) => {
    client.say({ do: 'connect', url: server.url, user: 'bob', transports: [transport] });
    (await stream(server)).welcome('c0').event('c1', event('e1'));
    await shows(client, ['e1']);
    const next = async (command) => {
      const done = client.ask(command);
      const visit = await stream(server);
      visit.welcome(visit.cursor);
      assert.equal((await done).error, undefined);
      return visit;
    };
    const two = await next({ do: 'watch', subject: 'room/7' });
    assert.deepEqual([two.cursor, two.presence], ['c1', ['room/7']]);
    two.message(state('room/7', 'ann'));
    await told(client, state('room/7', 'ann'));
    const three = await next({ do: 'unwatch', subject: 'room/7' });
    assert.deepEqual([three.cursor, three.presence], ['c1', []]);
    three.event('c2', event('e2'));
    await shows(client, ['e1', 'e2']);
  },
});

const refused = (transport) => ({
  name: `a watch that is refused is told so, and ends nothing (with ${transport})`,
  run: async ({ server, client }) => {
    client.say({ do: 'connect', url: server.url, user: 'bob', transports: [transport] });
    const one = await stream(server);
    one.welcome('c0').event('c1', event('e1'));
    await shows(client, ['e1']);
    const done = client.ask({ do: 'watch', subject: 'secret' });
    const asks = await server.visit();
    assert.deepEqual([asks.transport, asks.timeout, asks.presence], ['poll', '0', ['secret']]);
    asks.refuse(400, 'presence_off');
    assert.equal((await done).error, 'presence_off');
    one.event('c2', event('e2'));
    await shows(client, ['e1', 'e2']);
    await one.cut();
    assert.deepEqual((await stream(server)).presence, [], 'what was refused is not said');
  },
});

const WITHOUT_WAY_BACK = STREAMS.filter((transport) => transport !== 'websocket');

export const cases = [
  ...STREAMS.map(said),
  ...WITHOUT_WAY_BACK.map(changed),
  ...WITHOUT_WAY_BACK.map(refused),
  {
    name: 'watch and unwatch: in band, and by the next opening (with websocket)',
    run: async ({ server, client }) => {
      client.say({ do: 'connect', url: server.url, user: 'bob', transports: ['websocket'] });
      const one = await stream(server);
      one.welcome('c0').event('c1', event('e1'));
      await shows(client, ['e1']);
      server.answer = ({ presence }) => (presence === 'secret'
        ? { error: 'right_missing', status: 403 } : { ok: { added: 1, already: 0 } });
      for (const subject of ['room/7', 'room/8']) {
        assert.equal((await client.ask({ do: 'watch', subject })).error, undefined);
      }
      assert.equal((await client.ask({ do: 'watch', subject: 'secret' })).error, 'right_missing');
      await client.ask({ do: 'unwatch', subject: 'room/7' });
      assert.deepEqual(server.operations.map(({ op, presence }) => [op, presence]),
        [['subscribe', 'room/7'], ['subscribe', 'room/8'], ['subscribe', 'secret'],
          ['unsubscribe', 'room/7']]);
      assert.equal(server.visits.length, 1, 'without another connection');
      await one.cut();
      const two = await stream(server);
      assert.deepEqual([two.cursor, two.presence, two.subjects], ['c1', ['room/8'], []]);
    },
  },
  {
    name: 'a poll says nothing of presence (with poll)',
    run: async ({ server, client }) => {
      client.say({ do: 'connect', url: server.url, user: 'bob', transports: ['poll'],
        presence: SUBJECTS, subjects: ['live'] });
      for (const cursor of ['c1', 'c2']) {
        const visit = await server.visit();
        assert.deepEqual([visit.presence, visit.subjects], [[], ['live']]);
        visit.poll({ events: [event(cursor)], cursor });
      }
      await shows(client, ['c1', 'c2']);
    },
  },
];
