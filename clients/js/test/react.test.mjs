// examples/react in Chromium: what the React hooks show, and that a component that is removed ends
// its listeners.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { before } from 'node:test';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { follow, publish } from '../../../test/lib/client.mjs';
import { kill, test } from '../../../test/lib/halley.mjs';
import { endAfter, startWithBrowser } from '../../../test/lib/world.mjs';

const APP = `
  import { StrictMode, createElement as make, useState } from 'react';
  import { createRoot } from 'react-dom/client';
  import { connect } from './dist/index.js';
  import { useHalley, useHalleyState } from '../../examples/react/useHalley.js';

  const halley = connect(HALLEY, { user: 'ann' });
  let renders = 0;
  function Room({ subject }) {
    renders += 1;
    const { events, gaps } = useHalley(halley, subject, 3);
    return make('ul', { 'data-gaps': gaps }, events.map(({ id, data }) =>
      make('li', { key: id }, data)));
  }
  function App() {
    const [subject, setSubject] = useState('room/1');
    const state = useHalleyState(halley);
    return make('main', null, make('p', { role: 'status' }, state),
      make('button', { onClick: () => setSubject('room/2') }, 'two'),
      make('button', { onClick: () => setSubject(null) }, 'none'),
      subject && make(Room, { subject }));
  }
  createRoot(document.body).render(make(StrictMode, null, make(App)));
  Object.assign(window, { renders: () => renders });
`;

let halley;
let browser;
let server;
let page;
before(async () => {
  [halley, browser] = await startWithBrowser();
  const { outputFiles: [{ text }] } = await build({
    stdin: { contents: APP, resolveDir: fileURLToPath(new URL('..', import.meta.url)) },
    // The example has no packages of its own; a user's app does.
    nodePaths: [fileURLToPath(new URL('../node_modules', import.meta.url))],
    define: { HALLEY: JSON.stringify(halley.publicUrl), 'process.env.NODE_ENV': '"development"' },
    bundle: true, format: 'esm', write: false,
  });
  server = createServer(({ url }, answer) => {
    answer.setHeader('content-type', url === '/app.js' ? 'text/javascript' : 'text/html');
    answer.end(url === '/app.js' ? text
      : '<!doctype html><title>React</title><body></body><script type="module" src="/app.js">'
        + '</script>');
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  await follow(halley, ['ann', 'room/1'], ['ann', 'room/2']);
  page = await browser.newPage();
  await page.goto(`http://127.0.0.1:${server.address().port}`);
});
endAfter(() => [browser, server, halley]);

const said = () => page.locator('li').allTextContents();
const status = (text) => page.getByRole('status').filter({ hasText: text }).waitFor();

test('the last events about a subject, the newest first, and no more than asked for', async () => {
  await status('open');
  for (const text of ['a', 'b', 'c', 'd']) await publish(halley, 'room/1', text);
  await publish(halley, 'room/2', 'elsewhere');
  await page.locator('li').filter({ hasText: 'd' }).waitFor();
  assert.deepEqual(await said(), ['d', 'c', 'b']);
});

test('another subject begins anew', async () => {
  await page.getByRole('button', { name: 'two' }).click();
  await publish(halley, 'room/2', 'x');
  await page.locator('li').filter({ hasText: 'x' }).waitFor();
  await publish(halley, 'room/1', 'not here');
  await publish(halley, 'room/2', 'y');
  await page.locator('li').filter({ hasText: 'y' }).waitFor();
  assert.deepEqual(await said(), ['y', 'x']);
  assert.equal(await page.locator('ul').getAttribute('data-gaps'), '0');
});

test('the state is shown as it changes, and what was missed comes', async () => {
  // It is looked for before it comes, since it passes.
  const notices = status('reconnecting');
  kill(halley.edgePid(), 'SIGKILL');
  await notices;
  await halley.ready();
  await publish(halley, 'room/2', 'z');
  await status('open');
  await page.locator('li').filter({ hasText: 'z' }).waitFor();
  assert.deepEqual(await said(), ['z', 'y', 'x']);
});

test('a component that has gone listens no more', async () => {
  await page.getByRole('button', { name: 'none' }).click();
  await page.locator('ul').waitFor({ state: 'detached' });
  const renders = await page.evaluate('renders()');
  await publish(halley, 'room/2', 'nobody');
  await publish(halley, 'ann', 'nobody');
  await page.waitForTimeout(500);
  assert.equal(await page.evaluate('renders()'), renders);
});
