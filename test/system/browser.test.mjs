// A real browser's EventSource and WebSocket against the public listener.

import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { after, before } from 'node:test';
import { follow, publish, sessionsOf } from '../lib/client.mjs';
import { openBrowser } from '../lib/browser.mjs';
import { assertEvent } from '../lib/expect.mjs';
import { kill, start, test } from '../lib/halley.mjs';
import { until } from '../lib/wait.mjs';

let halley;
let browser;
let page;
before(async () => {
  [halley, browser] = await Promise.all([start(), openBrowser()]);
  page = await browser.newPage();
  await page.goto(`${halley.publicUrl}/demo`);
});
after(async () => {
  await browser?.close();
  await halley?.stop();
});

/** What the page has received so far. */
const received = () => page.evaluate(() => window.received);

test('EventSource opens, gets events, and reconnects by itself after the edge died', async () => {
  await page.evaluate(() => {
    window.received = [];
    window.source = new EventSource('/v1/stream?user=web');
    window.source.onmessage = (message) => window.received.push(JSON.parse(message.data));
  });
  await until('the session is there', async () => await sessionsOf(halley, 'web') === 1);
  await follow(halley, ['web', 'news']);
  await publish(halley, 'news', 'Žluťoučký 🐎');
  const [first] = await until('the event', async () => {
    const all = await received();
    return all.length === 1 ? all : null;
  });
  assertEvent(first, 'news', 'Žluťoučký 🐎');
  kill(halley.edgePid(), 'SIGKILL');
  await until('it is back', async () => await sessionsOf(halley, 'web') === 1
    && await page.evaluate(() => window.source.readyState) === 1);
  await publish(halley, 'news', 2);
  await until('the second event', async () => (await received()).length === 2);
  await page.evaluate(() => window.source.close());
  await until('no session', async () => await sessionsOf(halley, 'web') === 0);
});

test('WebSocket of the browser: events arrive as text, close is clean', async () => {
  await page.evaluate(() => {
    window.received = [];
    window.socket = new WebSocket(`ws://${location.host}/v1/ws?user=webs`);
    window.socket.onmessage = (message) => window.received.push(message.data);
    window.socket.onclose = (event) => { window.ending = [event.code, event.wasClean]; };
  });
  await until('the session is there', async () => await sessionsOf(halley, 'webs') === 1);
  await publish(halley, 'webs', [1]);
  const text = await until('the event', async () =>
    (await received()).find((message) => message.includes('"subject"')));
  assertEvent(JSON.parse(text), 'webs', [1]);
  await page.evaluate(() => window.socket.close(1000));
  await until('closed', () => page.evaluate(() => window.ending !== undefined));
  assert.deepEqual(await page.evaluate(() => window.ending), [1000, true]);
});

test('WebSocket of the browser: compression is agreed on, events come whole', async () => {
  await page.evaluate(() => {
    window.received = [];
    window.socket = new WebSocket(`ws://${location.host}/v1/ws?user=webz`);
    window.socket.onmessage = (message) => window.received.push(message.data);
  });
  await until('the session is there', async () => await sessionsOf(halley, 'webz') === 1);
  // The server knows of it before the page has read the answer.
  await until('the page has it', () => page.evaluate(() => window.socket.readyState === 1));
  assert.match(await page.evaluate(() => window.socket.extensions), /^permessage-deflate/);
  const data = 'Žluťoučký 🐎 '.repeat(500);
  await publish(halley, 'webz', data);
  const text = await until('the event', async () =>
    (await received()).find((message) => message.includes('"subject"')));
  assertEvent(JSON.parse(text), 'webz', data);
  await page.evaluate((padding) => {
    window.socket.send(JSON.stringify({ op: 'publish', subject: 'webz', data: padding, ref: 'p' }));
  }, data);
  await until('the second event', async () =>
    (await received()).filter((message) => message.includes('"subject"')).length === 2);
  await page.evaluate(() => window.socket.close(1000));
  await until('no session', async () => await sessionsOf(halley, 'webz') === 0);
});

test('a page of another origin may publish only if it is allowed (a preflight)', async () => {
  const pages = createServer((_, answer) => {
    answer.setHeader('content-type', 'text/html');
    answer.end('<!doctype html>');
  });
  await new Promise((resolve) => { pages.listen(0, '127.0.0.1', resolve); });
  const origin = `http://localhost:${pages.address().port}`;
  const allowing = await start({ settings: { HALLEY_CORS_ORIGINS: origin } });
  const foreign = await browser.newPage();
  try {
    await foreign.goto(origin);
    const publishTo = (server) => foreign.evaluate(async (url) => {
      const headers = { 'content-type': 'application/json' };
      const body = JSON.stringify({ subject: 'cors', data: 1 });
      try {
        return (await fetch(`${url}/v1/events`, { method: 'POST', headers, body })).status;
      } catch {
        return 'kept away';
      }
    }, server.apiUrl);
    assert.equal(await publishTo(halley), 'kept away');
    assert.equal(await publishTo(allowing), 200);
  } finally {
    await foreign.close();
    await allowing.stop();
    pages.close();
  }
});
