// A server of pages with the client in them, in Chromium, and what their tabs show.

import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';

const read = (path) => readFileSync(new URL(`../../${path}`, import.meta.url), 'utf8');

const HTML = `<!doctype html><title>app</title><script type="module">
  import { connect } from '/halley.min.js';
  window.open = (user, options) => {
    const one = { items: [], delays: [], times: [], events: [], states: [] };
    one.halley = connect('HALLEY', { user, ...options });
    one.halley.onItem((item) => {
      if (!item.gap) one.events.push(item);
      one.items.push(item.gap ? item.gap.reason : item.data);
      one.delays.push(item.gap ? 0 : Date.now() - item.at);
      one.times.push(item.gap ? 0 : item.at);
      window.told?.(one.items.at(-1), one.times.at(-1), one.delays.at(-1));
    });
    one.halley.onState((state) => one.states.push(state));
    window.one = one;
  };
  window.isThere = true;
</script>`;

/**
 * Serves the page at `/`, and `examples/dom` at `/example`, both for that Halley, at `publicUrl`,
 * which may be that of a network in front of it. After `hang()`,
 * the next request for `/hang` is `asked` and waits for `answer()`.
 */
export async function pagesFor(halley, publicUrl = halley.publicUrl) {
  const [bundle, example] = [read('dist/halley.min.js'), read('../../examples/dom/index.html')];
  let hung;
  const server = createServer(({ url }, answer) => {
    const isScript = url === '/halley.min.js';
    answer.setHeader('content-type', isScript ? 'text/javascript' : 'text/html');
    if (isScript) answer.end(bundle);
    else if (url.startsWith('/example')) answer.end(example);
    else if (url === '/hang') hung(answer);
    else answer.end(HTML.replace('HALLEY', publicUrl));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${server.address().port}`,
    close: () => server.close(),
    hang() {
      const asked = new Promise((resolve) => { hung = resolve; });
      return { asked, answer: () => asked.then((one) => one.end()) };
    },
  };
}

/**
 * What each tab of `context` shows: by tab, `[{ what, at, delay }]`. It is told as it is shown, as
 * a tab that was killed can't be asked. Ask for it before there are tabs.
 */
export async function witness(context) {
  const shown = new Map();
  await context.exposeBinding('told', ({ page }, what, at, delay) => {
    if (!shown.has(page)) shown.set(page, []);
    shown.get(page).push({ what, at, delay });
  });
  return shown;
}

/** Ends a tab as a bug of the browser does. */
export async function crash(tab) {
  const crashes = tab.waitForEvent('crash');
  tab.goto('chrome://crash').catch(() => {});
  await crashes;
}

/** The process that shows a tab of Chromium; the browser's own trace tells it. */
export async function processOf(browser, tab) {
  await browser.startTracing(tab, { categories: ['disabled-by-default-devtools.timeline'] });
  const { traceEvents } = JSON.parse(await browser.stopTracing());
  const { args } = traceEvents.find(({ name }) => name === 'TracingStartedInBrowser');
  return args.data.frames.find((frame) => frame.isInPrimaryMainFrame).processId;
}

/** Whether this tab holds the lock that is named after server and user: it has the connection. */
export const owns = (tab) => tab.evaluate(() => navigator.locks.request('who', async () => {
  const { held } = await navigator.locks.query();
  const { clientId } = held.find(({ name }) => name === 'who');
  return held.some((one) => one.clientId === clientId && one.name.startsWith('http'));
}));

/** A tab of `context` with a client, which is open unless it is told not to wait for that. */
export async function tabOf(context, pages, user, options = {}, waits = true) {
  const tab = await context.newPage();
  await tab.goto(pages.url);
  await tab.waitForFunction(() => window.isThere);
  await tab.evaluate(([name, more]) => window.open(name, more), [user, options]);
  if (waits) await tab.waitForFunction(() => window.one.halley.state === 'open');
  return tab;
}
