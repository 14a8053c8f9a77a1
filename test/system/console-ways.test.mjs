// How one comes to the console's pages, and what stands before them: finding an id, the menu of a
// phone, dialogs, the banner, a key that may not look. axe finds nothing serious in any.

import assert from 'node:assert/strict';
import { connect, createServer } from 'node:net';
import { after, before } from 'node:test';
import { openBrowser } from '../lib/browser.mjs';
import { api, publish } from '../lib/client.mjs';
import {
  goOn, makeKey, openPage, PHONE, picture, serious, unseen, WIDE,
} from '../lib/console.mjs';
import { freePort, start, test } from '../lib/halley.mjs';
import { closeStreams } from '../lib/streams.mjs';
import { until } from '../lib/wait.mjs';

/** Enough for charts that show something. */
const SAMPLES = 30;

let halley;
let browser;
let page;
let complaints;
let going;
before(async () => {
  [halley, browser] = await Promise.all([start(), openBrowser()]);
  going = await goOn(halley);
  ({ page, complaints } = await openPage(browser));
});
after(async () => {
  closeStreams();
  await going?.stop();
  await browser?.close();
  await halley?.stop();
});

const at = (where) => `${halley.apiUrl}/console#/${where}`;
const headingOf = (one) => one.getByRole('heading', { level: 1 });

async function find(id) {
  await page.keyboard.press('/');
  await page.keyboard.type(id);
  await page.keyboard.press('Enter');
}

/** `look(page)` in both sizes and colours, with nothing serious found; then `kept` of them. */
async function everyLook(name, kept, look) {
  for (const [size, viewport] of Object.entries({ wide: WIDE, phone: PHONE })) {
    for (const colorScheme of ['light', 'dark']) {
      const { page: looked } = await openPage(browser, { viewport, colorScheme, bypassCSP: true });
      await look(looked);
      assert.deepEqual(await serious(looked), [], `${name}, ${size}, ${colorScheme}`);
      if (kept.includes(`${size}-${colorScheme}`)) {
        await picture(looked, halley, `${name}-${size}-${colorScheme}`);
      }
      await looked.context().close();
    }
  }
}

test('finding: a user is gone to, a subject too, and both are offered where both are meant',
  async () => {
    await page.goto(at('workers'));
    await headingOf(page).filter({ hasText: 'Workers' }).waitFor();
    await find('room/7');
    await headingOf(page).filter({ hasText: 'room/7 subject' }).waitFor();
    await page.goBack();
    await headingOf(page).filter({ hasText: 'Workers' }).waitFor();
    await find('hana');
    await headingOf(page).filter({ hasText: 'hana online' }).waitFor();
    // She is online, is followed, and events are about her.
    await publish(halley, 'ann', 1);
    await find('ann');
    await page.getByTestId('choice').getByText('has 2 followers').waitFor();
    const hasFocus = (text) => until(`${text} has the focus`, () => page.evaluate((its) =>
      document.activeElement.textContent === its, text));
    await hasFocus('user ann');
    await page.keyboard.press('Enter');
    await headingOf(page).filter({ hasText: 'ann online' }).waitFor();
    await page.goBack();
    await hasFocus('user ann');
    await page.keyboard.press('Tab');
    await hasFocus('subject ann');
    await page.keyboard.press('Enter');
    await headingOf(page).filter({ hasText: 'ann subject' }).waitFor();
    await find('no/body');
    await page.getByTestId('choice').filter({ hasText: 'Nothing is known of this id' })
      .getByRole('link', { name: 'subject no/body' }).click();
    await headingOf(page).filter({ hasText: 'no/body subject' }).waitFor();
  });

test('the choice: nothing serious, its focus is seen', () => everyLook('find', [],
  async (looked) => {
    await looked.goto(at('find/ann'));
    await looked.getByTestId('choice').waitFor();
    assert.deepEqual(await unseen(looked), []);
  }));

test('the dialogs: keys, a question, and the drain', async () => {
  await everyLook('keys', [], async (looked) => {
    await looked.goto(at('workers'));
    await looked.getByRole('heading', { name: 'Workers' }).waitFor();
    await looked.keyboard.press('?');
    await looked.getByRole('dialog').getByText('this list').waitFor();
    assert.deepEqual(await unseen(looked), []);
  });
  await everyLook('close', [], async (looked) => {
    await looked.goto(at('users/ben'));
    await looked.getByTestId('sessions').getByRole('button').click();
    await looked.getByRole('dialog').waitFor();
    assert.deepEqual(await unseen(looked), []);
  });
  await everyLook('drain', ['phone-dark'], async (looked) => {
    await looked.goto(at('server'));
    await looked.getByTestId('drain').getByRole('button').click();
    await looked.getByRole('dialog').waitFor();
    assert.deepEqual(await unseen(looked), []);
  });
});

/** What a page asks about the status while `look` goes on: paths, and cursors that it showed. */
async function asked(looked, look) {
  const seen = [];
  const note = (request) => {
    const { pathname } = new URL(request.url());
    if (pathname.startsWith('/v1/status')) {
      seen.push([pathname, request.headers()['last-event-id'] !== undefined]);
    }
  };
  looked.on('request', note);
  await look();
  looked.off('request', note);
  return seen;
}

/** A way to a port that can be cut, and mended. */
async function wayTo(port) {
  const sockets = new Set();
  const own = await freePort();
  const server = createServer((socket) => {
    const other = connect(port, '127.0.0.1');
    for (const one of [socket, other]) {
      sockets.add(one);
      one.on('error', () => {});
      one.on('close', () => { sockets.delete(one); other.destroy(); socket.destroy(); });
    }
    socket.pipe(other).pipe(socket);
  });
  const mend = () => new Promise((done) => { server.listen(own, '127.0.0.1', done); });
  await mend();
  return { url: `http://127.0.0.1:${own}`, mend,
    cut: () => { server.close(); sockets.forEach((one) => one.destroy()); } };
}

test('live data comes through Halley, is asked for without that, and comes again', async () => {
  const { page: looked, complaints: heard } = await openPage(browser);
  await looked.goto(at('server'));
  const comes = looked.getByText('comes through Halley');
  const upFor = async () => (await looked.evaluate(() => {
    const names = [...document.querySelectorAll('dt')];
    const text = names.find((one) => one.textContent === 'Up for').nextSibling.textContent;
    return [...text.matchAll(/(\d+) (min|s)/g)]
      .reduce((sum, [, n, unit]) => sum + n * (unit === 's' ? 1 : 60), 0);
  }));
  await comes.waitFor();
  const before = await upFor();
  const quiet = await asked(looked, () =>
    until('three seconds came', async () => await upFor() > before + 2));
  assert.deepEqual(quiet, [], 'nothing is asked while events come');

  // A proxy that hands on nothing of a stream.
  await looked.route('**/v1/status/stream*', () => {});
  const without = await asked(looked, async () => {
    await looked.reload();
    await looked.getByText('is asked for, each second').waitFor();
    const now = await upFor();
    await until('it goes on', async () => await upFor() > now + 1);
  });
  assert.ok(without.filter(([path]) => path === '/v1/status').length > 2);

  await looked.unroute('**/v1/status/stream*');
  const way = await wayTo(halley.apiPort);
  await looked.goto(`${way.url}/console#/server`);
  await comes.waitFor();
  const again = await asked(looked, async () => {
    way.cut();
    await looked.getByTestId('banner').filter({ hasText: 'What you see is old' }).waitFor();
    await way.mend();
    await comes.waitFor();
    await looked.getByTestId('banner').waitFor({ state: 'detached' });
  });
  assert.ok(again.some(([path, cursor]) => path === '/v1/status/stream' && cursor),
    'it goes on from its cursor');
  way.cut();
  assert.deepEqual(heard, []);
  await looked.context().close();
});

test('the banner: what is seen is old, and that is said', () => everyLook('banner', [],
  async (looked) => {
    await looked.route('**/v1/status/stream*', (route) => route.abort());
    await looked.goto(at(''));
    await looked.locator('.tile-value').first().waitFor();
    await looked.route('**/v1/status*', (route) => route.abort());
    await looked.getByTestId('banner').filter({ hasText: 'What you see is old' }).waitFor();
  }));

/** Keeps what each canvas was last given to write, as `written` of its window. */
function keepsWriting() {
  globalThis.written = new Map();
  const { clearRect, fillText } = CanvasRenderingContext2D.prototype;
  CanvasRenderingContext2D.prototype.clearRect = function clear(...where) {
    globalThis.written.set(this.canvas, []);
    return clearRect.apply(this, where);
  };
  CanvasRenderingContext2D.prototype.fillText = function write(text, ...where) {
    globalThis.written.get(this.canvas)?.push(text);
    return fillText.call(this, text, ...where);
  };
}

/** 1,300 of `1,300`, 1,300,000 of `1.3M`. */
function numberOf(label) {
  const [, digits, unit] = /^([\d,.]+)([KM]?)$/.exec(label) ?? assert.fail(label);
  return Number(digits.replaceAll(',', '')) * { '': 1, K: 1e3, M: 1e6 }[unit];
}

test('the numbers at the side of a chart go up evenly, whatever it shows', async () => {
  const { json } = await api(halley, 'GET', '/v1/status');
  const column = json.columns.indexOf('connections') + 1;
  const { page: looked } = await openPage(browser, { bypassCSP: true });
  await looked.addInitScript(keepsWriting);
  await looked.route('**/v1/status/stream*', () => {});
  let samples = [];
  // What is newer never comes.
  await looked.route('**/v1/status?after=*', (route) => (route.request().url().endsWith('=0')
    ? route.fulfill({ json: { ...json, samples } }) : undefined));
  for (const most of [0, 1, 2, 3, 4, 6, 9, 12, 27, 140, 99_000, 130_000, 1_300_000]) {
    samples = Array.from({ length: 20 }, (_, n) => json.samples.at(-1).map((value, index) => {
      if (index === 0) return value + n * 1_000;
      return index === column ? Math.round(most * n / 19) : 0;
    }));
    await looked.goto('about:blank');
    await looked.goto(at(''));
    const labels = await until(`the numbers up to ${most}`, async () => {
      const canvas = await looked.locator('.chart canvas').nth(3).elementHandle();
      const all = await looked.evaluate((one) => globalThis.written.get(one), canvas);
      const found = all.filter((text) => !text.includes(':'));
      return found.length > 1 && found;
    });
    const numbers = labels.map(numberOf);
    assert.deepEqual(numbers, numbers.map((_, n) => n * numbers[1]), `${most}: ${labels}`);
    assert.ok(numbers[1] > 0 && numbers.at(-1) >= most / 2, `${most}: ${labels}`);
  }
  await looked.context().close();
});

test('the menu of a phone: opens, goes, and closes', async () => {
  for (const colorScheme of ['light', 'dark']) {
    const { page: phone } = await openPage(browser, { viewport: PHONE, colorScheme,
      bypassCSP: true });
    await phone.goto(at(''));
    await phone.locator('.tile-value').first().waitFor();
    assert.equal(await phone.getByRole('navigation').isVisible(), false);
    const menu = phone.getByRole('button', { name: 'Menu' });
    await menu.focus();
    await phone.keyboard.press('Enter');
    await phone.getByRole('link', { name: 'Workers' }).waitFor();
    assert.equal(await menu.getAttribute('aria-expanded'), 'true');
    assert.deepEqual(await serious(phone), []);
    assert.deepEqual(await unseen(phone), []);
    if (colorScheme === 'light') await picture(phone, halley, 'menu-phone-light');
    await phone.getByRole('link', { name: 'Workers' }).click();
    await phone.getByRole('heading', { name: 'Workers' }).waitFor();
    await phone.locator('nav').waitFor({ state: 'hidden' });
    await phone.context().close();
  }
});

test('the overview of a phone, whole: the memory and every chart have their place', async () => {
  await until('enough samples for the picture', async () =>
    (await api(halley, 'GET', '/v1/status')).json.samples.length >= SAMPLES, 60_000);
  const { page: phone } = await openPage(browser, { viewport: PHONE, colorScheme: 'dark' });
  await phone.goto(at(''));
  await until('the charts', async () => await phone.locator('.chart canvas').count() === 4);
  for (const chart of await phone.locator('.chart canvas, .parts').all()) {
    const { x, width } = await chart.boundingBox();
    assert.ok(x >= 0 && x + width <= PHONE.width, `from ${x}, ${width} wide`);
  }
  await picture(phone, halley, 'whole-phone-dark', { fullPage: true });
  await phone.context().close();
});

test('slow now, by name; and what clients lose where they are not closed for it', async () => {
  const settings = { HALLEY_PUBLIC_SLOW_CONSUMER: 'drop_oldest',
    HALLEY_LIMITS_OUTBOX_BYTES_MAX: '65536' };
  const server = await start({ settings });
  const socket = connect(server.publicPort, '127.0.0.1');
  try {
    socket.pause();
    socket.write('GET /v1/stream?user=snail HTTP/1.1\r\nHost: halley\r\n\r\n');
    await until('it is there', async () =>
      (await api(server, 'GET', '/v1/users/snail')).json.online);
    const { page: looked } = await openPage(browser);
    await looked.goto(`${server.apiUrl}/console#/users`);
    const now = looked.getByTestId('slow-now');
    await now.getByText('Nobody.').waitFor();
    assert.deepEqual((await api(server, 'GET', '/v1/behind')).json, { behind: [], unknown: 0 });
    const dropped = looked.getByTestId('slow-lately').getByRole('row', { name: 'drop_oldest' });
    await dropped.filter({ hasText: 'waiting events dropped' }).waitFor();
    await until('some were dropped', async () => {
      await publish(server, 'snail', 'x'.repeat(60_000));
      return Number(await dropped.getByRole('cell').nth(1).innerText()) > 0;
    });
    const { behind: [snail, ...others] } = (await api(server, 'GET', '/v1/behind')).json;
    assert.deepEqual([snail.user, snail.transport, others], ['snail', 'sse', []]);
    assert.ok(snail.outbox_bytes > 0 && snail.outbox_events > 0);
    await now.filter({ hasText: /\d KiB wait for all clients/ }).waitFor();
    const row = now.getByRole('row', { name: 'snail' });
    await row.filter({ hasText: /for \d+ s/ }).waitFor();
    assert.deepEqual(await serious(looked), []);
    await looked.setViewportSize(PHONE);
    assert.deepEqual(await serious(looked), []);
    await looked.setViewportSize(WIDE);
    await picture(looked, server, 'slow-wide-light');
    await row.getByRole('link').click();
    await headingOf(looked).filter({ hasText: 'snail' }).waitFor();
    await looked.goBack();
    socket.destroy();
    await now.getByText('Nobody.').waitFor();
    await looked.context().close();
  } finally {
    socket.destroy();
    await server.stop();
  }
});

test('nothing broke the policy, and no script failed', () => {
  assert.deepEqual(complaints, []);
});

test('a key without `read` is told so, sees no numbers, and may publish', async () => {
  const writer = await makeKey(halley, 'writer', 'publish');
  halley.consoleHeaders = { authorization: `Bearer ${writer}` };
  const asked = [];
  const { page: looked } = await openPage(browser);
  looked.on('request', (request) => asked.push(new URL(request.url()).pathname));
  await looked.goto(at(''));
  await looked.getByLabel('Server key').fill(writer);
  await looked.getByRole('button', { name: 'Sign in' }).click();
  await looked.getByText('This key may not look').waitFor();
  for (const where of ['users/ben', 'subjects', 'refusals', 'find/ben', 'why/x?user=ben']) {
    await looked.goto(at(where));
    await looked.getByText('needs the scope read').waitFor();
  }
  assert.deepEqual(await looked.getByRole('navigation').getByRole('link').allTextContents(),
    ['Publish', 'Server']);
  assert.equal(await looked.getByRole('search').count(), 0);
  await looked.getByRole('link', { name: 'Publish' }).click();
  await looked.getByRole('textbox', { name: 'Subject', exact: true }).fill('room/7');
  await looked.getByRole('button', { name: 'Publish' }).click();
  await looked.getByTestId('published').filter({ hasText: /Sent to \d+ session/ }).waitFor();
  await looked.getByRole('link', { name: 'Server' }).click();
  await looked.getByTestId('key').waitFor();
  assert.deepEqual(asked.filter((path) => /status|users|subjects|top|ended/.test(path)), []);
  await looked.context().close();
});
