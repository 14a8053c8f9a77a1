// protocol/http.md 8.4 and 14.2: a WebSocket may show its token as a subprotocol, so that it stands
// in no address and no proxy's log.

import assert from 'node:assert/strict';
import { request } from 'node:http';
import { before } from 'node:test';
import WebSocket from 'ws';
import { publish } from '../lib/client.mjs';
import { test } from '../lib/halley.mjs';
import { makeKey, mint } from '../lib/token.mjs';
import { endAfter, startWithTokens } from '../lib/world.mjs';

const key = makeKey('EdDSA', 'a');
let halley;
before(async () => {
  halley = await startWithTokens(key);
});
endAfter(() => [halley]);

const token = (sub = 'ann') => mint(key, { sub, halley: { subscribe: ['*'] } });

/** Opens what a page would: the next message and how it ended are promised. */
function open(protocols, query = '') {
  const url = `${halley.publicUrl.replace(/^http/, 'ws')}/v1/ws${query}`;
  const socket = new WebSocket(url, protocols);
  const opened = new Promise((resolve) => {
    socket.addEventListener('open', () => resolve('open'));
    socket.addEventListener('error', () => resolve('refused'));
  });
  const messages = [];
  const waiting = [];
  socket.addEventListener('message', ({ data }) => {
    messages.push(JSON.parse(data));
    for (const resolve of waiting.splice(0)) resolve();
  });
  const next = async () => {
    while (messages.length === 0) await new Promise((resolve) => waiting.push(resolve));
    return messages.shift();
  };
  return { socket, opened, next };
}

test('14.2 a token as a subprotocol, as a page says it', async () => {
  const { socket, opened, next } = open(['halley', `halley.token.${token()}`]);
  assert.equal(await opened, 'open');
  assert.equal(socket.protocol, 'halley', 'the answer names the protocol, and no token');
  assert.ok((await next()).cursor);
  await publish(halley, 'ann', 'hello');
  assert.equal((await next()).data, 'hello');
  socket.close();
});

test('8.4 what is agreed on', async () => {
  for (const [protocols, query, how, protocol] of [
    [[], `?token=${token()}`, 'open', ''],
    [['halley'], `?token=${token()}`, 'open', 'halley'],
    [['chat', 'halley', `halley.token.${token()}`], '', 'open', 'halley'],
    [['halley', `halley.token.${token()}`], '?user=ann', 'open', 'halley'],
  ]) {
    const { socket, opened } = open(protocols, query);
    assert.equal(await opened, how, JSON.stringify([protocols, query]));
    assert.equal(socket.protocol, protocol);
    socket.close();
  }
});

/** What the server answers to an opening, in full. */
async function refusal(protocols, query = '', more = {}) {
  return new Promise((resolve, reject) => {
    const asked = request(`${halley.publicUrl}/v1/ws${query}`, { headers: { Connection: 'Upgrade',
      Upgrade: 'websocket', 'Sec-WebSocket-Version': '13',
      'Sec-WebSocket-Key': 'dGhlIHNhbXBsZSBub25jZQ==', 'Sec-WebSocket-Protocol': protocols,
      ...more } });
    asked.on('response', async (answer) => {
      let text = '';
      for await (const part of answer) text += part;
      resolve([answer.statusCode, JSON.parse(text).error.code]);
    });
    asked.on('upgrade', (_, socket) => { socket.destroy(); resolve([101]); });
    asked.on('error', reject);
    asked.end();
  });
}

test('14.2 what is refused', async () => {
  const good = `halley.token.${token()}`;
  for (const [protocols, query, more, expected] of [
    [good, '', {}, [400, 'bad_subprotocol']],
    [`halley, ${good}, ${good}`, '', {}, [400, 'token_twice']],
    [`halley, ${good}`, `?token=${token()}`, {}, [400, 'token_twice']],
    [`halley, ${good}`, '', { Authorization: `Bearer ${token()}` }, [400, 'token_twice']],
    [`halley, ${good}`, '?user=bob', {}, [403, 'other_user']],
    ['halley, halley.token.', '', {}, [401, 'token_malformed']],
    [`halley, ${good.slice(0, -8)}AAAAAAAA`, '', {}, [401, 'token_signature']],
    ['halley', '', {}, [401, 'token_missing']],
    [`halley, ${good}`, '', {}, [101]],
  ]) {
    const answer = await refusal(protocols, query, more);
    assert.deepEqual(answer, expected, JSON.stringify([protocols, query, more]));
  }
});

test('14.2 it counts for WebSockets alone', async () => {
  const url = `${halley.publicUrl}/v1/me/follows`;
  const headers = { 'sec-websocket-protocol': `halley, halley.token.${token()}` };
  const answer = await fetch(url, { headers });
  assert.equal(answer.status, 401);
});
