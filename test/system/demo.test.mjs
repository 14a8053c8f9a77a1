// The demo page in a real browser, as a person uses it (issue 2, "First picture").

import assert from 'node:assert/strict';
import { after, before } from 'node:test';
import { openBrowser } from './lib/browser.mjs';
import { follow, http, publish, sessionsOf } from './lib/client.mjs';
import { kill, start, test } from './lib/halley.mjs';
import { until } from './lib/wait.mjs';

const UI_MS_MAX = 20_000;

let halley;
let browser;
let page;
const complaints = [];
before(async () => {
  [halley, browser] = await Promise.all([start(), openBrowser()]);
  page = await browser.newPage();
  page.setDefaultTimeout(UI_MS_MAX);
  page.on('pageerror', (error) => complaints.push(error.message));
  await page.goto(`${halley.publicUrl}/demo`);
});
after(async () => {
  await browser?.close();
  await halley?.stop();
});

const person = (number) => page.getByTestId(`person-${number}`);

async function connectAs(number, name) {
  await person(number).getByTestId('name').fill(name);
  await person(number).getByTestId('connect').click();
  await until(`${name} is connected`, async () =>
    await person(number).getByTestId('state').textContent() === 'connected'
      && await sessionsOf(halley, name) === 1);
}

/** The newest event that the person sees, once there are `count`. */
async function newest(number, count) {
  const events = person(number).getByTestId('event');
  await until(`${count} events`, async () => await events.count() === count);
  return {
    subject: await events.first().getByTestId('event-subject').textContent(),
    data: await events.first().getByTestId('event-data').textContent(),
  };
}

test('pick a name, follow someone, publish, and see the event arrive on both sides', async () => {
  await connectAs(1, 'ann');
  await connectAs(2, 'ben');
  await person(2).getByTestId('follow-subject').fill('ann');
  await person(2).getByTestId('follow-button').click();
  await person(2).getByTestId('followed').filter({ hasText: 'ann' }).waitFor();
  await person(1).getByTestId('publish-subject').fill('ann');
  await person(1).getByTestId('publish-text').fill('Hello, ben 🐎');
  await person(1).getByTestId('publish-button').click();
  const event = { subject: 'ann', data: 'Hello, ben 🐎' };
  assert.deepEqual(await newest(1, 1), event);
  assert.deepEqual(await newest(2, 1), event);
  await until('the result', async () =>
    /^Published: whoever follows ann /.test(await person(1).getByTestId('result').textContent()));
});

test('an event from outside arrives, and markup in it stays text', async () => {
  await publish(halley, 'ann', '<b id="injected">bold</b>');
  assert.equal((await newest(2, 2)).data, '<b id="injected">bold</b>');
  assert.equal(await page.locator('#injected').count(), 0);
});

test('unfollow: nothing arrives any more', async () => {
  await person(2).getByTestId('unfollow').click();
  await until('no follows', async () => await person(2).getByTestId('followed').count() === 0);
  await publish(halley, 'ann', 'not for ben');
  assert.equal((await newest(1, 3)).data, 'not for ben');
  assert.equal(await person(2).getByTestId('event').count(), 2);
});

test('the page follows a subject whose name needs escaping', async () => {
  const odd = 'a/b c%20d?e#f"g\'';
  await person(2).getByTestId('follow-subject').fill(odd);
  await person(2).getByTestId('follow-button').click();
  await person(2).getByTestId('followed').filter({ hasText: odd }).waitFor();
  await publish(halley, odd, 'odd');
  assert.deepEqual(await newest(2, 3), { subject: odd, data: 'odd' });
});

test('the curl commands that the page shows name what it is for', async () => {
  const listen = await person(1).getByTestId('curl-listen').textContent();
  assert.ok(listen.startsWith('curl -N'), listen);
  assert.ok(listen.includes(`${halley.publicPort}/v1/stream?user=ann`), listen);
  const command = await person(1).getByTestId('curl-publish').textContent();
  assert.ok(command.includes(`${halley.apiPort}/v1/events`), command);
});

test('kill -9 of the edge: the page comes back by itself', async () => {
  await follow(halley, ['ben', 'weather']);
  kill(halley.edgePid(), 'SIGKILL');
  await until('both are connected again', async () =>
    await sessionsOf(halley, 'ann') === 1 && await sessionsOf(halley, 'ben') === 1);
  await publish(halley, 'weather', 'sun');
  assert.equal((await newest(2, 4)).data, 'sun');
});

test('a name that is none is told on the page', async () => {
  const long = 'ž'.repeat(128);
  await person(1).getByTestId('follow-subject').evaluate((input, value) => {
    input.removeAttribute('maxlength');
    input.value = value;
  }, long);
  await person(1).getByTestId('follow-button').click();
  await until('an explanation', async () =>
    /255/.test(await person(1).getByTestId('result').textContent()));
});

test('the page and its parts are served with their types, nothing else is', async () => {
  const types = { '/demo': /^text\/html/, '/demo/demo.js': /javascript/,
    '/demo/demo.css': /^text\/css/, '/demo/icon.svg': /^image\/svg/ };
  for (const [path, type] of Object.entries(types)) {
    const answer = await http('GET', halley.publicUrl + path);
    assert.equal(answer.status, 200, path);
    assert.match(answer.headers['content-type'], type);
  }
  for (const path of ['/demo/../../halley.app', '/demo/..%2f..%2febin', '/demo/%2e%2e/x']) {
    assert.equal((await http('GET', halley.publicUrl + path)).status, 404, path);
  }
});

test('no error was thrown on the page in all of this', () => {
  assert.deepEqual(complaints, []);
});
