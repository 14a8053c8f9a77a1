// On the way: proxies that know no WebSocket, hold what they should pass on, or cut.

import assert from 'node:assert/strict';
import { STREAMS, event, shows, sleep } from '../lib/story.mjs';

const PAGE = '<html><body>Bad Gateway Timeout Forbidden</body></html>';

/** Answers as the proxy does until a visit comes by another transport than `broken`. */
async function past(server, broken, answer) {
  for (let n = 0; n < 4; n += 1) {
    const visit = await server.visit();
    if (visit.transport !== broken) return visit;
    answer(visit);
  }
  throw new Error(`it stays with ${broken}`);
}

export const cases = [
  {
    name: 'a proxy that refuses WebSockets by a page of its own: the next transport',
    run: async ({ server, client }) => {
      client.say({ do: 'connect', url: server.url, user: 'bob', transports: STREAMS });
      const visit = await past(server, 'websocket', (one) =>
        one.answer(400, PAGE, { 'Content-Type': 'text/html' }));
      visit.welcome('c0').event('c1', event('e1'));
      await shows(client, ['e1']);
    },
  },

  {
    name: 'a proxy that takes out the upgrade: 426, then the next transport',
    run: async ({ server, client }) => {
      client.say({ do: 'connect', url: server.url, user: 'bob', transports: STREAMS });
      const visit = await past(server, 'websocket', (one) => one.refuse(426, 'upgrade_required'));
      visit.welcome('c0').event('c1', event('e1'));
      await shows(client, ['e1']);
    },
  },

  {
    name: 'a proxy that holds the stream back: the next transport, by long-poll',
    run: async ({ server, client }) => {
      client.say({ do: 'connect', url: server.url, user: 'bob', transports: ['sse', 'poll'] });
      const visit = await past(server, 'sse', (one) => one.head());
      assert.equal(visit.transport, 'poll');
      visit.poll({ cursor: 'c0' });
      (await server.visit()).poll({ cursor: 'c1', events: [event('e1')] });
      await shows(client, ['e1']);
    },
  },

  {
    name: 'a page where a stream should be: the next transport',
    run: async ({ server, client }) => {
      client.say({ do: 'connect', url: server.url, user: 'bob', transports: ['sse', 'poll'] });
      const visit = await past(server, 'sse', (one) =>
        one.answer(200, PAGE, { 'Content-Type': 'text/html' }));
      visit.poll({ cursor: 'c0', events: [event('e1')] });
      await shows(client, ['e1']);
    },
  },

  {
    name: '502 of a proxy while the server is away is no end (sse)',
    run: async ({ server, client }) => {
      client.say({ do: 'connect', url: server.url, user: 'bob', transports: ['sse'] });
      (await server.visit()).answer(502, PAGE, { 'Content-Type': 'text/html' });
      (await server.visit()).answer(404, PAGE, { 'Content-Type': 'text/html' });
      (await server.visit()).welcome('c0').event('c1', event('e1'));
      await shows(client, ['e1']);
    },
  },

  ...STREAMS.map((transport) => ({
    name: `silence for too long is a loss, without a word of the network (${transport})`,
    run: async ({ server, client }) => {
      client.say({ do: 'connect', url: server.url, user: 'bob', transports: [transport],
        silence_ms: 2_000 });
      const one = await server.visit();
      one.welcome('c0').event('c1', event('e1'));
      one.socket.pause(); // and no answer to whatever it asks
      const two = await server.visit();
      assert.equal(two.cursor, 'c1');
      two.welcome('c1').event('c2', event('e2'));
      await shows(client, ['e1', 'e2']);
    },
  })),

  ...STREAMS.map((transport) => ({
    name: `heartbeats are no silence (${transport})`,
    run: async ({ server, client }) => {
      client.say({ do: 'connect', url: server.url, user: 'bob', transports: [transport],
        silence_ms: 6_000 });
      const one = await server.visit();
      one.welcome('c0');
      for (let n = 0; n < 12; n += 1) {
        await sleep(700);
        one.heartbeat('c0');
      }
      assert.equal(server.visits.length, 1);
      one.event('c1', event('e1'));
      await shows(client, ['e1']);
    },
  })),
];
