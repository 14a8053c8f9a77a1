// http.md 10: a client goes on after its cursor, shows each event once, and reports missing ones.

import assert from 'node:assert/strict';
import { STREAMS, event, isClosed, shows, sleep } from '../lib/story.mjs';

const perTransport = (name, body) => STREAMS.map((transport) => ({
  name: `${name} (${transport})`,
  run: async ({ server, client }) => {
    client.say({ do: 'connect', url: server.url, user: 'bob', transports: [transport] });
    await body({ server, client, transport });
  },
}));

/** What a server passes on as it was published. */
const DATA = [
  '9'.repeat(5_000), `-${'9'.repeat(5_000)}`, '1e999', '-1E-999', '-0', 'null',
  String.raw`"\ud800"`, String.raw`"\udc00\ud800\u0000"`, '"\u2028\u2029\ufeff"',
  '{"a":1,"a":2}', '{"__proto__":{"a":1}}', '{"":{"id":"x","cursor":"y"}}',
  `${'['.repeat(255)}${']'.repeat(255)}`, `"${'x'.repeat(60_000)}"`,
];

export const cases = [
  ...perTransport('a cut stream is resumed behind the last cursor', async ({ server, client }) => {
    const one = await server.visit();
    assert.equal(one.cursor, null);
    one.welcome('c0').event('c1', event('e1')).event('c2', event('e2'));
    await shows(client, ['e1', 'e2']);
    assert.deepEqual(client.events[0], event('e1'), 'an event is shown as it was sent');
    await one.cut();
    const two = await server.visit();
    assert.equal(two.cursor, 'c2');
    two.welcome('c2').event('c3', event('e3'));
    await shows(client, ['e1', 'e2', 'e3']);
    assert.deepEqual(client.states.filter((state) => state !== 'connecting').slice(0, 3),
      ['open', 'reconnecting', 'open'], 'its states tell the story');
  }),

  ...perTransport('what comes twice after a return is shown once', async ({ server, client }) => {
    const one = await server.visit();
    one.welcome('c0').event('c1', event('e1')).event('c2', event('e2'));
    await shows(client, ['e1', 'e2']);
    await one.cut();
    (await server.visit()).welcome('c2').event('c1x', event('e2')).event('c2x', event('e1'))
      .event('c3', event('e3'));
    await shows(client, ['e1', 'e2', 'e3']);
  }),

  ...perTransport('an event that was cut in its middle comes again', async ({ server, client }) => {
    const one = await server.visit();
    one.welcome('c0').event('c1', event('e1')).half('c2', event('e2'));
    await shows(client, ['e1']);
    await one.cut();
    const two = await server.visit();
    assert.equal(two.cursor, 'c1', 'the cursor of half an event was not taken');
    two.welcome('c1').event('c2', event('e2'));
    await shows(client, ['e1', 'e2']);
  }),

  ...perTransport('a gap is told where it is, and moves the cursor', async ({ server, client }) => {
    const gap = { from: 1, to: 2, reason: 'too_old' };
    const one = await server.visit();
    one.welcome('c0').event('c1', event('e1')).message({ cursor: 'c2', gap })
      .event('c3', event('e3'));
    await shows(client, ['e1', 'e3']);
    const items = client.told.filter((line) => line.event || line.gap);
    assert.deepEqual(items.map((line) => line.gap ?? line.event.id), ['e1', gap, 'e3']);
    one.message({ cursor: 'c4', gap: { from: null, to: null, reason: 'other_store' } });
    await client.until('a gap without times',
      () => client.told.some((line) => line.gap?.reason === 'other_store'));
    await one.cut();
    assert.equal((await server.visit()).cursor, 'c4');
  }),

  ...perTransport('what it does not know it leaves alone', async ({ server, client }) => {
    (await server.visit()).welcome('c0').message({ cursor: 'c1', something: { new: true } })
      .event('c2', { ...event('e1'), priority: 7 }).event('c3', event('e2', null));
    await shows(client, ['e1', 'e2']);
    assert.equal(client.events[1].data, null);
    await sleep(1_500);
    assert.equal(server.visits.length, 1, 'and the connection stays');
  }),

  ...perTransport('a heartbeat moves the cursor', async ({ server, client, transport }) => {
    (await server.visit()).welcome('c0');
    await client.until('it is open', () => client.states.includes('open'));
    let cursor = 'c0';
    // Who is held up while the connection is cut may not have read the heartbeat before.
    for (let n = 0; n < 3 && cursor !== 'c1'; n += 1) {
      const one = server.visits.at(-1);
      if (transport === 'websocket') one.message({ cursor: 'c1' });
      one.heartbeat('c1');
      await sleep(300);
      await one.cut();
      ({ cursor } = (await server.visit()).welcome(cursor));
    }
    assert.equal(cursor, 'c1');
  }),

  ...perTransport('an end of the server is no end for the client', async ({ server, client }) => {
    const one = await server.visit();
    one.welcome('c0').event('c1', event('e1'));
    await shows(client, ['e1']);
    one.end(1001, '');
    const two = await server.visit();
    assert.equal(two.cursor, 'c1');
    two.welcome('c1').event('c2', event('e2'));
    await shows(client, ['e1', 'e2']);
  }),

  ...perTransport('close ends it', async ({ server, client }) => {
    const one = await server.visit();
    one.welcome('c0').event('c1', event('e1'));
    await shows(client, ['e1']);
    client.say({ do: 'close' });
    await isClosed(client);
    for (let n = 0; n < 500 && !one.isOver; n += 1) await sleep(20);
    assert.ok(one.isOver, 'the connection is closed');
    await sleep(2_000);
    assert.equal(server.visits.length, 1);
  }),

  {
    name: 'an id that is used anew after a long time is another event (sse)',
    run: async ({ server, client }) => {
      client.say({ do: 'connect', url: server.url, user: 'bob', transports: ['sse'] });
      const later = { ...event('e1', 'another'), at: event('e1').at + 11 * 60_000 };
      (await server.visit()).welcome('c0').event('c1', event('e1')).event('c2', event('e1'))
        .event('c3', later).event('c4', later);
      await client.until('both', () => client.events.length >= 2);
      await sleep(300);
      assert.deepEqual(client.events.map(({ data }) => data), [{ text: 'e1' }, 'another']);
    },
  },

  {
    name: 'a cursor that it is given is where it begins (sse)',
    run: async ({ server, client }) => {
      client.say({ do: 'connect', url: server.url, user: 'bob', cursor: 'c+/7',
        transports: ['sse'] });
      assert.equal((await server.visit()).cursor, 'c+/7');
    },
  },

  {
    name: 'who comes back by a WebSocket and has missed nothing is open',
    run: async ({ server, client }) => {
      client.say({ do: 'connect', url: server.url, user: 'bob', cursor: 'c0',
        transports: ['websocket', 'sse'] });
      // 9.6: the server says nothing then.
      const one = (await server.visit()).head();
      await client.until('it is open', () => client.states.includes('open'));
      await sleep(12_000);
      assert.equal(server.visits.length, 1, 'and it stays');
      one.event('c1', event('e1'));
      await shows(client, ['e1']);
    },
  },

  ...['sse', 'ndjson'].map((transport) => ({
    name: `any JSON may be data, and ends no connection (${transport})`,
    run: async ({ server, client }) => {
      client.say({ do: 'connect', url: server.url, user: 'bob', transports: [transport] });
      const one = await server.visit();
      one.welcome('c0');
      for (const [n, data] of DATA.entries()) {
        const text = `{"id":"e${n}","subject":"ann","at":1800000000000,"data":${data}`;
        one.raw(transport === 'sse' ? `id: c${n}\ndata: ${text}}\n\n`
          : `${text},"cursor":"c${n}"}\n`);
      }
      await shows(client, DATA.map((_, n) => `e${n}`));
      assert.equal(server.visits.length, 1);
    },
  })),

  {
    name: 'polls go on behind the answer before, at once',
    run: async ({ server, client }) => {
      client.say({ do: 'connect', url: server.url, user: 'bob', transports: ['poll'] });
      const waits = [];
      (await server.visit()).poll({ cursor: 'c0' });
      for (let n = 0; n < 3; n += 1) {
        const answered = Date.now();
        const visit = await server.visit();
        waits.push(visit.at - answered);
        assert.equal(visit.cursor, 'c0');
        visit.poll({ cursor: 'c0' });
      }
      // A busy machine makes some of them late, not all.
      assert.ok(Math.min(...waits) < 500, `each poll waited before the next one: ${waits}`);
      (await server.visit()).poll({ gap: { from: 1, to: 2, reason: 'damaged' },
        events: [event('e1'), event('e2')], cursor: 'c1' });
      const two = await server.visit();
      assert.equal(two.cursor, 'c1');
      await two.cut();
      const three = await server.visit();
      assert.equal(three.cursor, 'c1');
      three.poll({ events: [event('e2'), event('e3')], cursor: 'c2' });
      await shows(client, ['e1', 'e2', 'e3']);
      assert.equal(client.told.find((line) => line.gap || line.event).gap.reason, 'damaged');
    },
  },
];
