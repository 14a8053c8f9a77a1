// Users' own operations, by request or by message: tried until it is answered, done once.

import assert from 'node:assert/strict';
import { event, shows } from '../lib/story.mjs';

/** With a stream that is open: some clients say everything over their WebSocket. */
const operation = (name, body, transport = 'sse') => ({
  name: `${name} (with ${transport})`,
  run: async ({ server, client }) => {
    client.say({ do: 'connect', url: server.url, user: 'bob', transports: [transport] });
    const visit = await server.visit();
    visit.welcome('c0').event('c1', event('e0'));
    await shows(client, ['e0']);
    // A connection that an operation took with it may come back.
    const back = async () => {
      for (;;) (await server.visit(60_000)).welcome('c1');
    };
    back().catch(() => {});
    await body({ server, client });
  },
});

const publishes = (server) => server.operations.filter(({ op }) => op === 'publish');

async function refusedOnce({ server, client }) {
  server.answer = ({ id }) => (publishes(server).length > 1 ? { ok: { id: id ?? 'x' } }
    : { error: 'overloaded', status: 503, retryAfter: 2 });
  const { results, error } = await client.ask({ do: 'publish',
    events: [{ subject: 'ann', data: { n: 1 } }] });
  assert.equal(error, undefined);
  assert.equal(results.length, 1);
  const [one, two] = publishes(server);
  assert.ok(one.id, 'it has an id from the first try on');
  assert.equal(one.id, two.id);
  assert.deepEqual([two.subject, two.data], ['ann', { n: 1 }]);
  assert.ok(two.at - one.at >= 1_950, `Retry-After is kept to: ${two.at - one.at} ms`);
}

async function cutOnce({ server, client }) {
  server.answer = ({ id }) => (publishes(server).length > 1 ? { ok: { id } } : null);
  const { results } = await client.ask({ do: 'publish',
    events: [{ subject: 'ann', data: 1, id: 'order-7' }] });
  assert.deepEqual(results, [{ id: 'order-7' }]);
  assert.deepEqual(publishes(server).map(({ id }) => id), ['order-7', 'order-7']);
}

async function batch({ server, client }) {
  const seen = new Map();
  server.answer = ({ id }) => {
    seen.set(id, (seen.get(id) ?? 0) + 1);
    if (id === 'bad') return { error: 'right_missing', status: 403 };
    return id === 'b' && seen.get(id) === 1
      ? { error: 'overloaded', status: 503, retryAfter: 1 } : { ok: { id } };
  };
  const events = ['a', 'b', 'bad', 'c'].map((id) => ({ subject: 'ann', data: id, id }));
  const { results } = await client.ask({ do: 'publish', events });
  assert.deepEqual(results.map((one) => one.id ?? one.error), ['a', 'b', 'right_missing', 'c']);
  assert.equal(seen.get('b'), 2, 'what may pass is tried again');
  assert.equal(seen.get('bad'), 1, 'what may not is not');
}

async function refusedForGood({ server, client }) {
  server.answer = () => ({ error: 'right_missing', status: 403 });
  const answer = await client.ask({ do: 'publish', events: [{ subject: 'ann', data: 1 }] });
  assert.equal(answer.error ?? answer.results[0].error, 'right_missing');
  assert.equal(publishes(server).length, 1);
}

async function follows({ server, client }) {
  server.answer = ({ op }) => ({ ok: op === 'presence' ? { user: 'a/b', online: true }
    : op === 'follow' ? { added: 1, already: 0 } : { removed: 1, absent: 0 } });
  await client.ask({ do: 'follow', subject: 'a/b' });
  await client.ask({ do: 'unfollow', subject: 'a/b' });
  const { result } = await client.ask({ do: 'presence', user: 'a/b' });
  assert.ok(result === true || result.online === true);
  assert.deepEqual(server.operations.map(({ op, subject }) => [op, subject]),
    [['follow', 'a/b'], ['unfollow', 'a/b'], ['presence', 'a/b']]);
}

const stories = {
  'a publish that is refused for now is sent again, as the same event': refusedOnce,
  'a publish without an answer is sent again, as the same event': cutOnce,
  'a batch has an answer for each, and repeats what may pass': batch,
  'a publish that is refused for good is told so': refusedForGood,
  'follow, unfollow, presence': follows,
};

export const cases = Object.entries(stories).flatMap(([name, body]) =>
  [operation(name, body), operation(name, body, 'websocket')]);
