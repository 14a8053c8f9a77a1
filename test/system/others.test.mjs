// Clients that other people wrote, as they are: each comes back after its connection ended with
// nothing missing (protocol/http.md 10.1).

import assert from 'node:assert/strict';
import { before } from 'node:test';
import EventSource from 'eventsource';
import polyfill from 'event-source-polyfill';
import ReconnectingWebSocket from 'reconnecting-websocket';
import WebSocket from 'ws';
import { api, publish, sessionsOf } from '../lib/client.mjs';
import { start, test } from '../lib/halley.mjs';
import { Queue, until } from '../lib/wait.mjs';
import { endAfter } from '../lib/world.mjs';

let halley;
before(async () => {
  halley = await start({ settings: { HALLEY_STREAM_RETRY: '200ms' } });
});
endAfter(() => [halley]);

/** What each is told of: the address it is made with, where its messages go, and how it ends. */
const CLIENTS = {
  // Says `Last-Event-ID`.
  eventsource: (url, take) => {
    const source = new EventSource(`${url}/v1/stream?user=eventsource`);
    source.onmessage = ({ data }) => take(JSON.parse(data));
    return () => source.close();
  },
  // Says `?lastEventId=`, as a header would need a preflight.
  'event-source-polyfill': (url, take) => {
    const source = new polyfill.EventSourcePolyfill(`${url}/v1/stream?user=event-source-polyfill`);
    source.onmessage = ({ data }) => take(JSON.parse(data));
    return () => source.close();
  },
  // Says nothing by itself; its address may be a function, as its README has it.
  'reconnecting-websocket': (url, take) => {
    let cursor = '';
    const address = () => `${url.replace('http', 'ws')}/v1/ws?user=reconnecting-websocket&cursor=${
      cursor}`;
    const socket = new ReconnectingWebSocket(address, [], { WebSocket,
      minReconnectionDelay: 100, maxReconnectionDelay: 300 });
    socket.onmessage = ({ data }) => {
      const message = JSON.parse(data);
      cursor = message.cursor ?? cursor;
      if ('subject' in message) take(message);
    };
    return () => socket.close();
  },
};

test('fetch with a string as its body, whose type nobody chose', async () => {
  for (const url of [`${halley.apiUrl}/v1/events`, `${halley.publicUrl}/v1/me/events?user=u`]) {
    const body = JSON.stringify({ subject: 's', data: 1 });
    const answer = await fetch(url, { method: 'POST', body });
    assert.equal(answer.status, 200, await answer.text());
  }
});

for (const [name, open] of Object.entries(CLIENTS)) {
  test(`${name} misses nothing while it comes back`, async () => {
    const events = new Queue();
    const close = open(halley.publicUrl, (event) => events.push(event));
    await until(`${name} is there`, async () => await sessionsOf(halley, name) === 1);
    const seen = [];
    for (const round of [1, 2, 3]) {
      await publish(halley, name, `live ${round}`);
      seen.push((await events.next(`${name} live ${round}`)).data);
      await api(halley, 'DELETE', `/v1/users/${name}/sessions`);
      await until(`${name} is away`, async () => await sessionsOf(halley, name) === 0);
      await publish(halley, name, `away ${round}`);
      seen.push((await events.next(`${name} away ${round}`)).data);
    }
    close();
    assert.deepEqual(seen, [1, 2, 3].flatMap((n) => [`live ${n}`, `away ${n}`]));
  });
}
