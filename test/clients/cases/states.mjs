// http.md 23: a user's own state is the connection's, so a client that comes back sends it again;
// and others' states are handed on as they came.

import assert from 'node:assert/strict';
import { STREAMS, event, shows, sleep } from '../lib/story.mjs';

const LOOK_MS = 20;
const WAIT_MS_MAX = 45_000;
const BUSY = { is: 'busy', until: 17 };

/** What the server has heard of it; each is answered before the next is waited for. */
const heard = (server) =>
  server.operations.filter(({ op }) => op === 'state').map(({ data }) => data);

async function hears(server, count) {
  for (let waited = 0; heard(server).length < count && waited < WAIT_MS_MAX; waited += LOOK_MS) {
    await sleep(LOOK_MS);
  }
  assert.equal(heard(server).length, count);
}

/** Connected by WebSocket, and its state is said. */
async function saidBusy(server, client) {
  client.say({ do: 'connect', url: server.url, user: 'bob', transports: ['websocket'] });
  const visit = await server.visit();
  visit.welcome('c0').event('c1', event('e1'));
  await shows(client, ['e1']);
  assert.equal((await client.ask({ do: 'say', data: BUSY })).error, undefined);
  return visit;
}

const handedOn = (transport) => ({
  name: `what others say of themselves is handed on (${transport})`,
  run: async ({ server, client }) => {
    client.say({ do: 'connect', url: server.url, user: 'bob', transports: [transport],
      presence: ['room/7'] });
    const told = [
      { subject: 'room/7', online: 2, users: ['ann', 'eve'], states: { ann: BUSY } },
      { subject: 'room/7', user: 'joe', state: 'join', data: [1, null] },
      { subject: 'room/7', user: 'eve', state: 'update', data: 'away' },
      { subject: 'room/7', user: 'ann', state: 'update', data: null },
    ];
    const visit = (await server.visit()).welcome('c0');
    for (const presence of told) visit.message({ presence });
    visit.event('c1', event('e1'));
    await shows(client, ['e1']);
    assert.deepEqual(client.presence, told);
  },
});

export const cases = [
  ...STREAMS.map(handedOn),
  {
    name: 'what a user says of itself is said again by each WebSocket (with websocket)',
    run: async ({ server, client }) => {
      const one = await saidBusy(server, client);
      assert.deepEqual(heard(server), [BUSY]);
      assert.equal(server.visits.length, 1, 'in band');
      await one.cut();
      const two = await server.visit();
      two.welcome('c1');
      await hears(server, 2);
      assert.deepEqual(heard(server), [BUSY, BUSY]);
      assert.equal((await client.ask({ do: 'say', data: null })).error, undefined);
      assert.equal(heard(server).at(-1), null);
      await two.cut();
      (await server.visit()).welcome('c1').event('c2', event('e2'));
      await shows(client, ['e1', 'e2']);
      assert.ok(heard(server).slice(3).every((data) => data === null), 'nothing any more');
    },
  },
  {
    name: 'a state that is refused is told so, and the one before is said again (with websocket)',
    run: async ({ server, client }) => {
      const one = await saidBusy(server, client);
      server.answer = () => ({ error: 'state_too_large', status: 413 });
      assert.equal((await client.ask({ do: 'say', data: 'x' })).error, 'state_too_large');
      // A message beyond `limits.message_bytes_max` would end the connection, and each next one.
      const long = { do: 'say', data: 'x'.repeat(70_000) };
      assert.equal((await client.ask(long)).error, 'state_too_large');
      server.answer = () => ({ ok: {} });
      assert.deepEqual(heard(server), [BUSY, 'x']);
      await one.cut();
      (await server.visit()).welcome('c1');
      await hears(server, 3);
      assert.deepEqual(heard(server), [BUSY, 'x', BUSY]);
    },
  },
];
