// A server of pages with the client in them, in Chromium, and what their tabs show.

import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';

const read = (path) => readFileSync(new URL(`../../${path}`, import.meta.url), 'utf8');

const HTML = `<!doctype html><title>app</title><script type="module">
  import { connect } from '/halley.min.js';
  window.open = (user, options) => {
    const one = { items: [], delays: [], times: [], events: [] };
    one.halley = connect('HALLEY', { user, ...options });
    one.halley.onItem((item) => {
      if (!item.gap) one.events.push(item);
      one.items.push(item.gap ? item.gap.reason : item.data);
      one.delays.push(item.gap ? 0 : Date.now() - item.at);
      one.times.push(item.gap ? 0 : item.at);
    });
    window.one = one;
  };
  window.isThere = true;
</script>`;

/**
 * Serves the page at `/`, and `examples/dom` at `/example`, both for that Halley. After `hang()`,
 * the next request for `/hang` is `asked` and waits for `answer()`.
 */
export async function pagesFor(halley) {
  const [bundle, example] = [read('dist/halley.min.js'), read('../../examples/dom/index.html')];
  let hung;
  const server = createServer(({ url }, answer) => {
    const isScript = url === '/halley.min.js';
    answer.setHeader('content-type', isScript ? 'text/javascript' : 'text/html');
    if (isScript) answer.end(bundle);
    else if (url.startsWith('/example')) answer.end(example);
    else if (url === '/hang') hung(answer);
    else answer.end(HTML.replace('HALLEY', halley.publicUrl));
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

/** A tab of `context` with a client, which is open unless it is told not to wait for that. */
export async function tabOf(context, pages, user, options = {}, waits = true) {
  const tab = await context.newPage();
  await tab.goto(pages.url);
  await tab.waitForFunction(() => window.isThere);
  await tab.evaluate(([name, more]) => window.open(name, more), [user, options]);
  if (waits) await tab.waitForFunction(() => window.one.halley.state === 'open');
  return tab;
}
