// The demo page in a real browser, as a person uses it in the first minute.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, before } from 'node:test';
import { fileURLToPath } from 'node:url';
import { openBrowser } from '../lib/browser.mjs';
import { api, http, publish, sessionsOf } from '../lib/client.mjs';
import { isAlive, kill, start, test } from '../lib/halley.mjs';
import { PHONE, openPage, picture, serious, unseen } from '../lib/pages.mjs';
import { sleep, until } from '../lib/wait.mjs';

const ACT = { 'x-halley-demo': 'act' };

let halley;
let browser;
const complaints = [];
before(async () => {
  [halley, browser] = await Promise.all([start(), openBrowser()]);
});
after(async () => {
  await browser?.close();
  await halley?.stop();
});

/** A window of the demo, as that user; the others are quiet unless it is said otherwise. */
async function demo(user, { cast = 'still', server = halley, ...options } = {}) {
  const opened = await openPage(browser, options);
  complaints.push(opened.complaints);
  const { page } = opened;
  await page.goto(`${server.publicUrl}/demo?user=${encodeURIComponent(user)}&cast=${cast}`);
  await page.waitForFunction(() => document.body.dataset.ready);
  return opened;
}

const post = (page, text) => page.getByTestId('post').filter({ hasText: text });

async function say(page, text) {
  await page.getByLabel('Say something').fill(text);
  await page.getByRole('button', { name: 'Post' }).click();
}

/** Waits for the result of a button to be good, and gives it. */
async function good(page, act) {
  const result = page.locator(`#${act}-result[data-kind="good"]`);
  await result.waitFor({ timeout: 60_000 });
  return result.textContent();
}

test('two windows, two people: who follows the other has the post, and the wire shows it',
  async () => {
    const [{ page: mia, context }, { page: noa, context: other }] =
      await Promise.all([demo('mia'), demo('noa')]);
    await noa.getByTestId('person-mia').getByRole('button').click();
    await noa.getByTestId('person-mia').getByText('Following').waitFor();
    await say(mia, 'Hello, noa 🐎');
    await post(mia, 'Hello, noa 🐎').waitFor();
    await post(noa, 'Hello, noa 🐎').waitFor();
    assert.equal(await post(noa, 'Hello, noa').count(), 1);
    await noa.getByTestId('wire-event').filter({ hasText: 'Hello, noa' }).waitFor();
    await mia.getByTestId('wire-publish').filter({ hasText: 'Hello, noa' }).waitFor();
    await post(noa, 'Hello, noa').getByRole('button', { name: /^Like/ }).click();
    await post(mia, 'Hello, noa').getByText(/♥.*noa/).waitFor();
    await noa.getByTestId('person-mia').getByRole('button').click();
    await noa.getByTestId('person-mia').getByText('Follow', { exact: true }).waitFor();
    await say(mia, 'not for noa');
    await post(mia, 'not for noa').waitFor();
    assert.equal(await post(noa, 'not for noa').count(), 0);
    await context.close();
    await mia.waitForEvent('close').catch(() => {});
    await noa.locator('[data-testid=person-mia]:not(.online)').waitFor();
    await other.close();
  });

test('the others are there, and react', async () => {
  const { page, context } = await demo('pia');
  await page.locator('[data-testid=person-ada].online').waitFor();
  await until('somebody likes it', async () => {
    await say(page, 'Do you see me?');
    return await page.locator('.likes').filter({ hasText: '♥' }).count() > 0;
  });
  await context.close();
});

test('who is there is told where the server tells it: nobody is asked about', async () => {
  const settings = { HALLEY_PRESENCE_SUBJECTS: 'wall', HALLEY_PRESENCE_LEAVE_AFTER: '1s' };
  const server = await start({ settings });
  try {
    const { page, context } = await demo('noa', { server });
    const asked = [];
    page.on('request', (request) => asked.push(new URL(request.url()).pathname));
    await page.locator('[data-testid=person-ada].online').waitFor();
    const { context: other } = await demo('mia', { server, cast: 'off' });
    await page.locator('[data-testid=person-mia].online').waitFor();
    await other.close();
    await page.locator('[data-testid=person-mia]:not(.online)').waitFor();
    assert.deepEqual(asked.filter((path) => path.includes('presence')), []);
    await context.close();
  } finally {
    await server.stop();
  }
});

test('the wire: a long message is one line, a click shows it whole, Enter all', async () => {
  const { page, context } = await demo('lia', { cast: 'off' });
  await say(page, 'a long message '.repeat(15));
  const line = page.getByTestId('wire-event').filter({ hasText: 'a long message' });
  await line.waitFor();
  const height = async () => (await line.boundingBox()).height;
  const one = await height();
  assert.ok(one < 30, `${one} px`);
  assert.doesNotMatch(await line.innerText(), /"cursor":"[^"]{10}/);
  await line.click();
  assert.ok(await height() > 2 * one);
  assert.match(await line.innerText(), /"cursor":"[\w-]{20}/);
  await line.click();
  assert.equal(await height(), one);
  await page.getByRole('region', { name: 'Messages of your connection' }).focus();
  await page.keyboard.press('Enter');
  assert.ok(await height() > 2 * one);
  await context.close();
});

test('on a phone: what the buttons do is said, the wire covers nothing, more people fade',
  async () => {
    const { page, context } = await demo('lea', { viewport: PHONE, cast: 'still' });
    for (const act of ['kill', 'offline', 'celebrity']) {
      const { width, height } = await page.locator(`#${act}-what`).boundingBox();
      assert.ok(width > 100 && height > 15, `${act}: ${width} x ${height}`);
    }
    await until('a wall', async () => {
      await say(page, 'one more');
      return await page.getByTestId('post').count() >= 8;
    });
    const boxOf = (id) => page.locator(id).boundingBox();
    for (const y of [0, 200, 400]) {
      await page.evaluate((top) => scrollTo(0, top), y);
      const [wire, feed] = [await boxOf('#wire'), await boxOf('#feed')];
      assert.ok(wire.y + wire.height <= feed.y || wire.y >= feed.y + feed.height, `at ${y}`);
    }
    const people = page.locator('#people');
    const fades = () => people.evaluate((one) => getComputedStyle(one).maskImage !== 'none');
    assert.equal(await fades(), true);
    await people.evaluate((one) => { one.scrollLeft = one.scrollWidth; });
    await until('the last one is whole', async () => !await fades());
    await context.close();
  });

test('an event from outside arrives, and markup in it stays text', async () => {
  const { page, context } = await demo('otto');
  await publish(halley, 'otto', { text: '<b id="injected">bold</b>' });
  await post(page, '<b id="injected">bold</b>').waitFor();
  await publish(halley, 'otto', [1, '<i>']);
  await post(page, '[1,"<i>"]').waitFor();
  assert.equal(await page.locator('#injected').count(), 0);
  const command = await page.locator('#curl').textContent();
  assert.equal(command, 'curl -d \'{"subject":"otto","data":{"text":"Hello from a terminal"}}\' '
    + `http://127.0.0.1:${halley.apiPort}/v1/events`);
  await context.close();
});

test('kill the brain: another takes over, no stream notices, what is posted meanwhile arrives',
  async () => {
    const { page, context } = await demo('rio');
    const [brain, edge] = [halley.brainPid(), halley.edgePid()];
    await page.getByRole('button', { name: 'Kill the brain' }).click();
    await page.locator('#kill-result').filter({ hasText: `kill -9 ${brain}` }).waitFor();
    await say(page, 'into the dark');
    const result = await good(page, 'kill');
    assert.match(result, /1 of 1 streams stayed open/);
    await post(page, 'into the dark').waitFor();
    assert.equal(await post(page, 'into the dark').count(), 1);
    assert.ok(!isAlive(brain));
    assert.notEqual(halley.brainPid(), brain);
    assert.equal(halley.edgePid(), edge);
    assert.equal(halley.hasExited, false, 'the launcher goes on');
    assert.equal(await page.locator('#state').textContent(), 'open · websocket');
    await context.close();
  });

test('go offline and come back: nothing is missing, nothing is there twice', async () => {
  const { page, context } = await demo('sam', { cast: 'lively' });
  await page.getByRole('button', { name: 'Go offline' }).click();
  await page.locator('#state[data-state=reconnecting]').waitFor();
  await page.locator('#offline-result').filter({ hasText: /([3-9]|\d\d) posts for you/ }).waitFor();
  await say(page, 'written offline');
  const before = await page.getByTestId('post').count();
  await page.getByRole('button', { name: 'Come back' }).click();
  assert.match(await good(page, 'offline'), /none missing, none twice/);
  await post(page, 'written offline').waitFor();
  assert.ok(await page.getByText('while you were away').count() >= 3);
  assert.ok(await page.getByTestId('post').count() >= before + 4);
  await context.close();
});

test('become a celebrity: ten thousand followers, and a post reaches each live one', async () => {
  const { page, context } = await demo('tess');
  await page.getByRole('button', { name: 'Become a celebrity' }).click();
  await page.locator('#celebrity-result').filter({ hasText: 'the 100 of them' }).waitFor();
  assert.match(await good(page, 'celebrity'), /^10,00\d followers/);
  assert.equal(await sessionsOf(halley, 'fan-100'), 1);
  await context.close();
});

test('kill -9 of the edge: the page comes back by itself', async () => {
  const { page, context } = await demo('uma');
  // It is looked for before it comes, since it passes.
  const notices = page.locator('#state[data-state=reconnecting]').waitFor();
  kill(halley.edgePid(), 'SIGKILL');
  await notices;
  await page.locator('#state[data-state=open]').waitFor();
  // Where the edge is away for long another way is tried, and this one again after a minute.
  await page.locator('#state').filter({ hasText: 'open · websocket' }).waitFor({ timeout: 90_000 });
  await publish(halley, 'uma', { text: 'after the kill' });
  await post(page, 'after the kill').waitFor();
  await context.close();
});

test('kill -9 of the edge: the people take no HTTP connection that the page may need', async () => {
  const { page, context } = await demo('vera');
  const users = ['vera', 'ada', 'ben', 'cleo', 'dana', 'eli', 'finn', 'gwen'];
  const transports = async () => (await Promise.all(users.map(async (user) =>
    (await api(halley, 'GET', `/v1/users/${user}/sessions`)).json.sessions)))
    .map((sessions) => sessions.map(({ transport }) => transport).join());
  const allByWebSocket = () => until('all are there by WebSockets', async () =>
    (await transports()).every((one) => one === 'websocket'), 60_000);
  await allByWebSocket();
  await page.evaluate(() => {
    window.seen = [];
    const source = new EventSource('/v1/stream?user=extra');
    source.onmessage = ({ data }) => window.seen.push(JSON.parse(data).data);
  });
  await until('an EventSource', async () => await sessionsOf(halley, 'extra') === 1);
  // Several times, so that it is away for long enough to make a client try what else there is.
  for (let n = 0; n < 4; n += 1) {
    kill(await until('an edge', () => halley.edgePid()), 'SIGKILL');
    await sleep(1_000);
  }
  await until('an edge that lasts', () =>
    publish(halley, 'nobody', 0).then(() => true, () => false), 60_000);
  await until('the EventSource is back', () =>
    publish(halley, 'extra', 'back').then(({ sessions }) => sessions === 1, () => false));
  await until('and has it', () => page.evaluate(() => window.seen.includes('back')));
  await allByWebSocket();
  await context.close();
});

test('a name that is none is told on the page', async () => {
  const { page, context } = await openPage(browser);
  await page.goto(`${halley.publicUrl}/demo?user=${encodeURIComponent('ž'.repeat(128))}`);
  await page.getByRole('alert').filter({ hasText: '255' }).waitFor();
  await context.close();
});

test('by the keyboard alone: post, follow, go offline, read the wire', async () => {
  const { page, context } = await demo('vik', { cast: 'off' });
  const press = async (name) => {
    const target = page.getByRole('button', { name, exact: true });
    await target.focus();
    const width = await target.evaluate((one) => getComputedStyle(one).outlineWidth);
    assert.equal(width, '3px', `the focus of ${name} is seen`);
    await page.keyboard.press('Enter');
  };
  await page.keyboard.press('Tab');
  await page.keyboard.press('Enter');
  await page.keyboard.press('Tab');
  await page.getByLabel('Say something').focus();
  await page.keyboard.type('by keys');
  await page.keyboard.press('Enter');
  await post(page, 'by keys').waitFor();
  await press('Follow dana');
  await page.getByTestId('person-dana').getByText('Following').waitFor();
  await press('Go offline');
  await page.locator('#state[data-state=reconnecting]').waitFor();
  await press('Come back');
  await page.locator('#state[data-state=open]').waitFor();
  await page.getByRole('region', { name: 'Messages of your connection' }).focus();
  await page.keyboard.press('End');
  await context.close();
});

const looks = { 'demo-wide': {}, 'demo-dark': { colorScheme: 'dark' },
  'demo-phone': { viewport: PHONE, isMobile: true, hasTouch: true },
  'demo-phone-dark': { viewport: PHONE, colorScheme: 'dark' } };
for (const [name, options] of Object.entries(looks)) {
  test(`${name}: axe finds nothing serious, all fits, and a picture is made`, async () => {
    const { page, context } = await demo('zoe', { cast: 'lively', ...options });
    await until('a wall', async () => await page.getByTestId('post').count() >= 5);
    await page.getByRole('button', { name: 'Become a celebrity' }).click();
    await good(page, 'celebrity');
    await page.locator('#celebrity-result').filter({ hasText: 'the 100 of them' }).waitFor();
    await page.getByText(/♥ \w/).first().waitFor();
    await page.mouse.move(1, 1);
    assert.deepEqual(await serious(page), []);
    const [inner, scroll] = await page.evaluate(() =>
      [innerWidth, document.documentElement.scrollWidth]);
    assert.ok(scroll <= inner, `${scroll} pixels in ${inner}`);
    await picture(page, halley.folder, name);
    assert.deepEqual(await unseen(page), []);
    if (options.viewport) {
      await page.locator('summary').click();
      assert.deepEqual(await serious(page), []);
      assert.deepEqual(await unseen(page), []);
    }
    await context.close();
  });
}

test('nobody but the page kills the brain', async () => {
  const [url, own] = [`${halley.publicUrl}/demo/acts/kill-brain`, { origin: halley.publicUrl }];
  const brain = halley.brainPid();
  const evil = { host: 'evil.example', origin: 'http://evil.example' };
  for (const headers of [{}, ACT, own, { ...ACT, origin: 'http://evil.example' },
    { ...ACT, origin: 'null' }, { ...ACT, ...evil }]) {
    const { status } = await http('POST', url, { headers });
    assert.equal(status, 403, JSON.stringify(headers));
  }
  assert.equal((await http('GET', url, { headers: { ...ACT, ...own } })).status, 405);
  assert.equal(halley.brainPid(), brain);
});

test('the page and its parts are served with their types, nothing else is', async () => {
  const types = { '/demo': /^text\/html/, '/demo/demo.js': /javascript/,
    '/demo/halley.min.js': /javascript/, '/demo/demo.css': /^text\/css/,
    '/demo/icon.svg': /^image\/svg/ };
  for (const [path, type] of Object.entries(types)) {
    const answer = await http('GET', halley.publicUrl + path);
    assert.equal(answer.status, 200, path);
    assert.match(answer.headers['content-type'], type);
  }
  for (const path of ['/demo/../../halley.app', '/demo/..%2f..%2febin', '/demo/%2e%2e/x']) {
    assert.equal((await http('GET', halley.publicUrl + path)).status, 404, path);
  }
});

test('the client that the page uses is the one that `make client` builds', () => {
  const read = (path) => readFileSync(fileURLToPath(new URL(`../../${path}`, import.meta.url)));
  assert.ok(read('apps/halley_api/priv/demo/halley.min.js')
    .equals(read('clients/js/dist/halley.min.js')), 'run `make client`');
});

test('no error was thrown on a page in all of this', () => {
  assert.deepEqual(complaints.flat(), []);
});
