// http.md 14: a client asks for tokens in time, once for each, and not again and again.

import assert from 'node:assert/strict';
import { STREAMS, between, event, isClosed, shows, sleep, token } from '../lib/story.mjs';

/** A client asks for the next before 90 % of it are over, and has some seconds for that. */
const TOKEN_S = 30;

const wants = (client) => client.told.filter((line) => line.want === 'token');

/** Each of its own; the client is given the next one whenever it wants one. */
function tokens(client, ...list) {
  let given = 0;
  client.onWant = () => list[Math.min(given++, list.length - 1)];
  return list;
}

const perTransport = (name, body) => STREAMS.map((transport) => ({
  name: `${name} (${transport})`,
  run: (context) => body({ ...context, transport }),
}));

export const cases = [
  ...perTransport('token_expired: back at once with a new one and the cursor', async (context) => {
    const { server, client, transport } = context;
    const [first, second] = tokens(client, token(1), token(2));
    client.say({ do: 'connect', url: server.url, tokens: true, transports: [transport] });
    const one = await server.visit();
    assert.equal(one.token, first);
    one.welcome('c0', 40_000).event('c1', event('e1'));
    await shows(client, ['e1']);
    const at = Date.now();
    one.message({ cursor: 'c2', end: { reason: 'token_expired' } });
    one.end(4401, 'token_expired');
    const two = await server.visit();
    between(at, two, [0, 20_000], 'the return');
    assert.equal(two.token, second);
    assert.equal(two.cursor, 'c2');
    two.welcome('c2').event('c3', event('e2'));
    await shows(client, ['e1', 'e2']);
  }),

  {
    name: 'a token is renewed in band before it expires (websocket)',
    run: async ({ server, client }) => {
      const list = tokens(client, token(1, TOKEN_S), token(2, 3_600));
      const expires = Date.now() + TOKEN_S * 1_000;
      client.say({ do: 'connect', url: server.url, tokens: true, transports: ['websocket'] });
      const one = await server.visit();
      one.welcome('c0');
      const { at } = await client.until('a second token is wanted', () => wants(client)[1]);
      assert.ok(at < expires, `${at - expires} ms after it has expired`);
      const said = () => one.said.filter(({ op }) => op === 'token').map((each) => each.token);
      while (said().length === 0) await sleep(100);
      assert.deepEqual(said(), [list[1]]);
      one.event('c1', event('e1'));
      await shows(client, ['e1']);
      assert.equal(server.visits.length, 1, 'the connection stays');
    },
  },

  {
    name: 'a token of a stream without a way back is renewed by a new request (sse)',
    run: async ({ server, client }) => {
      const list = tokens(client, token(1, 6), token(2, 3_600));
      client.say({ do: 'connect', url: server.url, tokens: true, transports: ['sse'] });
      const one = await server.visit();
      one.welcome('c0').event('c1', event('e1'));
      // At its end at the latest: a client may wait for that.
      setTimeout(() => {
        if (one.isOver) return;
        one.message({ end: { reason: 'token_expired' } }).end();
      }, 7_000).unref();
      const two = await server.visit();
      assert.equal(two.token, list[1]);
      assert.equal(two.cursor, 'c1');
      two.welcome('c1').event('c2', event('e2'));
      await shows(client, ['e1', 'e2']);
    },
  },

  {
    name: '401: a new token at once, and patience when that is refused as well (sse)',
    run: async ({ server, client }) => {
      tokens(client, token(1), token(2), token(3), token(4), token(5));
      client.say({ do: 'connect', url: server.url, tokens: true, transports: ['sse'] });
      const seen = [];
      for (let end = Infinity; seen.length < 2 || Date.now() < end;) {
        const visit = await server.visit();
        seen.push(visit);
        visit.refuse(401, 'token_signature');
        end = Math.min(end, Date.now() + 4_000);
      }
      assert.ok(seen.length <= 5, `not ${seen.length} times in 4 s`);
      assert.equal(new Set(seen.map((visit) => visit.token)).size, seen.length, 'never the same');
    },
  },

  {
    name: 'a callback that takes its time is asked once, and nothing is opened without it (sse)',
    run: async ({ server, client }) => {
      client.onWant = () => undefined;
      client.say({ do: 'connect', url: server.url, tokens: true, transports: ['sse'] });
      await client.until('a token is wanted', () => wants(client).length === 1);
      await sleep(500);
      assert.equal(wants(client).length, 1, 'once at a time');
      assert.equal(server.visits.length, 0, 'and nothing without it');
      client.say({ do: 'token', token: token(1) });
      (await server.visit()).welcome('c0').event('c1', event('e1'));
      await shows(client, ['e1']);
    },
  },

  {
    name: 'a token of which there is no other: refused is the end (sse)',
    run: async ({ server, client }) => {
      client.say({ do: 'connect', url: server.url, token: token(1), transports: ['sse'] });
      (await server.visit()).refuse(401, 'token_expired');
      assert.equal((await isClosed(client)).code, 'token_expired');
      await sleep(2_500);
      assert.equal(server.visits.length, 1);
    },
  },

  ...[[400, 'bad_query'], [403, 'other_user'], [404, 'not_found'],
    [414, 'request_line_too_long']].map(([status, code]) => ({
    name: `${status}: what no waiting changes is the end`,
    run: async ({ server, client }) => {
      tokens(client, token(1));
      client.say({ do: 'connect', url: server.url, tokens: true, transports: ['ndjson'] });
      (await server.visit()).refuse(status, code);
      assert.equal((await isClosed(client)).code, code);
      await sleep(2_500);
      assert.equal(server.visits.length, 1);
    },
  })),

  {
    name: 'no token any more: signed out is the end (sse)',
    run: async ({ server, client }) => {
      client.onWant = () => null;
      client.say({ do: 'connect', url: server.url, tokens: true, transports: ['sse'] });
      await isClosed(client);
      assert.equal(server.visits.length, 0);
    },
  },
];
