// http.md 13, 16: a client comes back at the server's time, and otherwise patiently and by chance.

import assert from 'node:assert/strict';
import { between, event, shows, sleep } from '../lib/story.mjs';

/** Chance, and a machine that is busy. */
const SPREAD_MS = 15_000;

const refused = (transport, status, code) => ({
  name: `${status} ${code} with Retry-After is kept to (${transport})`,
  run: async ({ server, client }) => {
    client.say({ do: 'connect', url: server.url, user: 'bob', transports: [transport] });
    const one = await server.visit();
    const at = Date.now();
    one.refuse(status, code, 3);
    const two = await server.visit();
    between(at, two, [2_950, 3_000 + SPREAD_MS], 'the second try');
    two.refuse(status, code, 1);
    const three = await server.visit();
    if (transport === 'poll') three.poll({ cursor: 'c0', events: [event('e1')] });
    else three.welcome('c0').event('c1', event('e1'));
    await shows(client, ['e1']);
  },
});

export const cases = [
  refused('sse', 503, 'busy'),
  refused('ndjson', 429, 'too_many_requests'),
  refused('poll', 503, 'memory_low'),

  {
    name: '": busy" is kept to like a refusal (sse)',
    run: async ({ server, client }) => {
      client.say({ do: 'connect', url: server.url, user: 'bob', transports: ['sse'] });
      const one = await server.visit();
      const at = Date.now();
      one.head().raw(': busy\nretry: 2500\n\n').end();
      const two = await server.visit();
      between(at, two, [2_450, 2_500 + SPREAD_MS], 'the second try');
      assert.ok(!client.states.includes('open'), 'it was never open');
      two.welcome('c0').event('c1', event('e1'));
      await shows(client, ['e1']);
    },
  },

  {
    name: 'the last retry: of a stream says when to come back (sse)',
    run: async ({ server, client }) => {
      client.say({ do: 'connect', url: server.url, user: 'bob', transports: ['sse'] });
      const one = await server.visit();
      one.welcome('c0').event('c1', event('e1')).raw('retry: 4000\nid: c2\n\n');
      await shows(client, ['e1']);
      await sleep(100);
      const at = Date.now();
      one.end();
      const two = await server.visit();
      between(at, two, [3_950, 4_000 + SPREAD_MS], 'the return');
      assert.equal(two.cursor, 'c2');
    },
  },

  {
    name: 'who finds nobody waits longer each time (sse)',
    run: async ({ server, client }) => {
      client.say({ do: 'connect', url: server.url, user: 'bob', transports: ['sse'] });
      const times = [];
      for (let n = 0; n < 5; n += 1) {
        const visit = await server.visit();
        times.push(visit.at);
        visit.socket.destroy();
      }
      const waits = times.slice(1).map((at, n) => at - times[n]);
      assert.ok(waits.every((ms) => ms >= 200), `no wait is nothing: ${waits}`);
      assert.ok(waits[2] + waits[3] > waits[0] + waits[1], `they grow: ${waits}`);
      assert.ok(waits[3] <= 30_000, `and stay bearable: ${waits}`);
    },
  },

  {
    name: 'clients that lose their connections together come back apart',
    clients: 4,
    run: async ({ server, clients }) => {
      for (const client of clients) {
        client.say({ do: 'connect', url: server.url, user: 'bob', transports: ['ndjson'] });
      }
      const spreads = [];
      let visits = await Promise.all(clients.map(() => server.visit()));
      // A server that is held up sees them come together, but not each time.
      for (let n = 1; n <= 3; n += 1) {
        for (const visit of visits) visit.welcome('c0');
        await Promise.all(clients.map((client) => client.until('it is open', () =>
          client.states.filter((state) => state === 'open').length >= n)));
        const at = Date.now();
        for (const visit of visits) visit.socket.destroy();
        visits = await Promise.all(clients.map(() => server.visit()));
        const waits = visits.map((visit) => visit.at - at).sort((a, b) => a - b);
        assert.ok(waits[0] > 100, `none at once: ${waits}`);
        spreads.push(waits[3] - waits[0]);
      }
      assert.ok(Math.max(...spreads) > 50, `by chance: ${spreads}`);
    },
  },

  {
    name: 'too_many_sessions: two clients of a user do not fight for its place',
    run: async ({ server, client }) => {
      client.say({ do: 'connect', url: server.url, user: 'bob', transports: ['websocket'] });
      const one = await server.visit();
      one.welcome('c0').event('c1', event('e1'));
      await shows(client, ['e1']);
      one.end(1001, 'too_many_sessions: a newer one took the place');
      await sleep(6_000);
      assert.equal(server.visits.length, 1, 'it stays away for a while');
    },
  },
];
