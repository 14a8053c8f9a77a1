// Carries out the steps of README.md and `make run`.

import assert from 'node:assert/strict';
import { readFileSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import { after, before } from 'node:test';
import { fileURLToPath } from 'node:url';
import { openBrowser } from '../lib/browser.mjs';
import { http, publish, sessionsOf } from '../lib/client.mjs';
import { prepare, scratchFile, start, test } from '../lib/halley.mjs';
import { jwks, makeKey, mint, nowS } from '../lib/token.mjs';
import { sleep, until } from '../lib/wait.mjs';

const README = readFileSync(new URL('../../README.md', import.meta.url), 'utf8');
const TOKEN_S = 3;

let browser;
before(async () => { browser = await openBrowser(); });
after(() => browser?.close());

const CLIENT = fileURLToPath(new URL('../../clients/js/dist/halley.min.js', import.meta.url));

/** The block of code that begins so. */
const block = (beginning) => README.split('```').find((part) => part.trim().startsWith(beginning));

test('the page\'s five lines outlive a token, an outage longer than that, and a gap', async () => {
  const key = makeKey('HS256', 'k', 'a secret of thirty-two bytes, or more');
  const halley = await prepare({ settings: { HALLEY_AUTH_MODE: 'jwt', HALLEY_AUTH_LEEWAY: '1ms',
    HALLEY_DRAIN_TIME: '1s' } });
  halley.settings.HALLEY_AUTH_KEYS = scratchFile(halley, 'jwks.json', jwks(key));
  await halley.start();
  const page = await browser.newPage();
  try {
    let asked = 0;
    await page.exposeFunction('newToken', () => {
      asked += 1;
      if (asked === 2) throw new Error('the server of tokens is away, too');
      return mint(key, { sub: 'bob', exp: nowS() + TOKEN_S });
    });
    await page.route('**/halley.min.js', (route) => route.fulfill({ path: CLIENT }));
    await page.goto(`${halley.publicUrl}/healthz`);
    const lines = block('import { connect }');
    assert.ok(lines.trim().split('\n').length <= 10);
    await page.addScriptTag({ content: `const shown = [], gaps = [], banner = {};
      const show = (event) => shown.push(event.data), reload = (gap) => gaps.push(gap.reason);` });
    await page.addScriptTag({ type: 'module', content: lines });
    const shows = (data) => until(`${data} is shown`, async () => {
      const shown = await page.evaluate('shown');
      return shown.at(-1) === data && shown.length;
    });
    // Published before it listens would be before its first cursor.
    await until('a stream', async () => await sessionsOf(halley, 'bob') === 1);
    await publish(halley, 'bob', 'first');
    await shows('first');
    await sleep(TOKEN_S * 1_000);
    await publish(halley, 'bob', 'with another token');
    await shows('with another token');

    await halley.terminate();
    await sleep((TOKEN_S + 1) * 1_000);
    await halley.start();
    await publish(halley, 'bob', 'after an outage');
    await shows('after an outage');
    await until('the banner is hidden', () => page.evaluate('banner.hidden'));
    assert.deepEqual(await page.evaluate('gaps'), []);

    await halley.terminate();
    rmSync(halley.settings.HALLEY_DATA_DIR, { recursive: true });
    await halley.start();
    await until('the gap', async () => (await page.evaluate('gaps')).length > 0);
    assert.deepEqual(await page.evaluate('gaps'), ['other_store']);
    await publish(halley, 'bob', 'after a gap');
    await shows('after a gap');
    const shown = await page.evaluate('shown');
    assert.deepEqual(shown,
      ['first', 'with another token', 'after an outage', 'after a gap']);
  } finally {
    await page.close();
    await halley.stop();
  }
});

/** What `Halley-Refused` says, in a poll, a plain POST and a PUT with a preflight of this page. */
async function refusals(page, url) {
  const tools = await page.context().newCDPSession(page);
  const told = new Map();
  await tools.send('Network.enable');
  tools.on('Network.responseReceivedExtraInfo', ({ requestId, headers }) => {
    const names = Object.keys(headers);
    const name = names.find((one) => one.toLowerCase() === 'halley-refused');
    told.set(requestId, name && headers[name]);
  });
  try {
    await page.evaluate(async (to) => {
      const asks = [[`${to}/v1/poll?user=p&timeout=0`, {}],
        [`${to}/v1/me/events?user=p`, { method: 'POST', body: '{}' }],
        [`${to}/v1/me/follows/s?user=p`, { method: 'PUT' }]];
      for (const [address, options] of asks) await fetch(address, options).catch(() => {});
    }, url);
    return await until('three answers', () => told.size >= 3 && [...new Set(told.values())]);
  } finally {
    await tools.detach();
  }
}

test('a page of another origin may come in when README.md\'s cors.origins has it', async () => {
  const pages = createServer((_, response) => response.end('<!doctype html><title>app</title>'));
  await new Promise((listens) => { pages.listen(0, '127.0.0.1', listens); });
  const origin = `http://localhost:${pages.address().port}`;
  assert.match(README, /`cors\.origins = https:\/\/app\.example\.org,http:\/\/localhost:3000`/);
  const page = await browser.newPage();
  const opens = (halley, kind) => page.evaluate(([url, kind]) => new Promise((resolve) => {
    const connection = kind === 'ws' ? new WebSocket(`${url.replace('http', 'ws')}/v1/ws?user=p`)
      : new EventSource(`${url}/v1/stream?user=p`);
    connection.onopen = () => resolve(true);
    connection.onerror = () => resolve(false);
  }), [halley.publicUrl, kind]);
  const refusing = await start();
  const allowing = await start({
    settings: { HALLEY_CORS_ORIGINS: `https://app.example.org,${origin}` } });
  try {
    await page.goto(origin);
    for (const kind of ['ws', 'stream']) {
      assert.equal(await opens(allowing, kind), true, kind);
      assert.equal(await opens(refusing, kind), false, kind);
    }
    const line = `pages of ${origin} may read nothing here, change nothing and open no WebSocket; `
      + 'if they are yours, add this origin to cors.origins';
    await until('the log says it', () => refusing.log.includes(line));
    assert.equal(refusing.log.split('pages of').length, 2, 'once');
    assert.doesNotMatch(allowing.log, /pages of/);
    // What the browser's tools show, and the page can't read.
    assert.match(README, /`Halley-Refused`/);
    const refused = await refusals(page, refusing.publicUrl);
    assert.deepEqual(refused, [`cors.origins lacks ${origin}`]);
    assert.deepEqual(await refusals(page, allowing.publicUrl), [undefined]);
    await page.goto(`${refusing.publicUrl}/healthz`);
    assert.deepEqual(await refusals(page, refusing.publicUrl), [undefined], 'on a page of its own');
  } finally {
    await page.close();
    pages.close();
    await refusing.stop();
    await allowing.stop();
  }
});

test('./halley try names what is there', async () => {
  const halley = await start();
  try {
    const { code, stdout } = await halley.command('try');
    assert.equal(code, 0);
    const [demo] = /http:\S+\/demo$/m.exec(stdout);
    assert.equal((await http('GET', demo)).status, 200);
    const [api] = /http:\S+\/v1\/events$/m.exec(stdout);
    assert.equal(new URL(api).port, `${halley.apiPort}`);
    halley.settings.HALLEY_AUTH_MODE = 'jwt';
    halley.settings.HALLEY_AUTH_HMAC_SECRET = 'a secret of thirty-two bytes, or more';
    const withTokens = await halley.command('try');
    assert.doesNotMatch(withTokens.stdout, /\/demo/);
    halley.settings.HALLEY_AUTH_MODE = 'none';
    halley.settings.HALLEY_AUTH_HMAC_SECRET = null;
  } finally {
    await halley.stop();
  }
});
