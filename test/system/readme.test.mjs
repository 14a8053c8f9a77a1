// What README.md and `make run` tell people to do, done.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { after, before } from 'node:test';
import { openBrowser } from './lib/browser.mjs';
import { start, test } from './lib/halley.mjs';
import { until } from './lib/wait.mjs';

const README = readFileSync(new URL('../../README.md', import.meta.url), 'utf8');

let browser;
before(async () => { browser = await openBrowser(); });
after(() => browser?.close());

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
  } finally {
    await page.close();
    pages.close();
    await refusing.stop();
    await allowing.stop();
  }
});
