// Tokens: asked for, renewed before they expire, by message where that goes, and refused.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, before } from 'node:test';
import { publish, sessionsOf } from '../../../test/lib/client.mjs';
import { prepare, scratchFile, test } from '../../../test/lib/halley.mjs';
import { jwks, makeKey, mint, nowS } from '../../../test/lib/token.mjs';
import { sleep, until } from '../../../test/lib/wait.mjs';
import { client, proxy, reaches } from './lib/world.mjs';

const TOKEN_S = 3;
const LONG_TOKEN_S = 12;
const RIGHTS = { subscribe: ['live/*'], publish: ['*'], follow: ['*'], presence: ['*'] };

const key = makeKey('HS256', 'k', 'a secret of thirty-two bytes, or more');
const tokenOf = (sub, seconds = TOKEN_S, more = {}) =>
  mint(key, { sub, exp: nowS() + seconds, halley: RIGHTS, ...more });

let halley;
before(async () => {
  halley = await prepare({ settings: { HALLEY_AUTH_MODE: 'jwt', HALLEY_AUTH_LEEWAY: '1ms' } });
  halley.settings.HALLEY_AUTH_KEYS = scratchFile(halley, 'jwks.json', jwks(key));
  await halley.start();
});
after(() => halley?.stop());

test('websocket: the token is renewed by message, and the connection stays', async () => {
  const way = await proxy(halley.publicPort, () => undefined);
  let asked = 0;
  // Good for so long by `exp`; by `iat` the client takes it for less, and has time to be late.
  const token = () => {
    asked += 1;
    const exp = nowS() + LONG_TOKEN_S;
    return tokenOf('stays', LONG_TOKEN_S, { exp, iat: exp - TOKEN_S });
  };
  const one = client(way.url, { token });
  await reaches(one, 'open');
  await sleep((LONG_TOKEN_S + 1) * 1_000);
  await one.halley.publish('stays', 'later');
  assert.equal((await one.items.next()).data, 'later');
  assert.equal(way.paths.length, 1, `${way.paths}`);
  assert.ok(asked >= 3, `${asked}`);
  assert.deepEqual(one.reasons, []);
  one.halley.close();
  way.close();
});

for (const transport of ['sse', 'ndjson', 'poll']) {
  test(`${transport}: the next token is there when the last one ends, and nothing is lost`,
    async () => {
      const user = `renews-${transport}`;
      const one = client(halley.publicUrl,
        { token: () => tokenOf(user), transports: [transport] });
      await reaches(one, 'open');
      const total = 30;
      for (let n = 0; n < total; n += 1) {
        await publish(halley, user, n);
        await sleep(3 * TOKEN_S * 1_000 / total);
      }
      const items = await one.items.take(total);
      assert.deepEqual(items.map(({ data }) => data), Array.from({ length: total }, (_, n) => n));
      assert.ok(one.reasons.length >= 2);
      // A connection that is reused just as the server ends it is one that can't be reached.
      assert.deepEqual(one.reasons.filter((code) =>
        !['token_expired', 'unreachable'].includes(code)), []);
      one.halley.close();
    });
}

test('the token stands in a header, in no address, but for the WebSocket', async () => {
  const way = await proxy(halley.publicPort, () => undefined);
  for (const transport of ['sse', 'ndjson', 'poll']) {
    const one = client(way.url, { token: tokenOf('quiet', 60), transports: [transport] });
    await reaches(one, 'open');
    await one.halley.publish('quiet', 1);
    one.halley.close();
  }
  assert.ok(way.paths.length >= 6);
  assert.deepEqual(way.paths.filter((path) => path.includes('token')), []);
  way.close();
});

test('a callback that fails for a while, then gives a token', async () => {
  let asked = 0;
  const one = client(halley.publicUrl, { token: () => {
    asked += 1;
    if (asked < 3) throw new Error('the server of tokens is away');
    return tokenOf('late', 60);
  } });
  await reaches(one, 'open');
  assert.deepEqual(one.reasons, ['token_callback', 'token_callback']);
  one.halley.close();
});

test('null is the end: nobody is signed in; so is a token that is no function, when it ends',
  async () => {
    const nobody = client(halley.publicUrl, { token: () => null });
    await reaches(nobody, 'closed');
    assert.deepEqual(nobody.reasons, ['signed_out']);
    const fixed = client(halley.publicUrl, { token: tokenOf('fixed', 8) });
    await reaches(fixed, 'open');
    await reaches(fixed, 'closed');
    assert.deepEqual(fixed.reasons, ['token_expired']);
  });

test('a token that is refused is told, and the callback asked for another', async () => {
  let asked = 0;
  const one = client(halley.publicUrl, { token: () => {
    asked += 1;
    return asked === 1 ? tokenOf('refused', -60) : tokenOf('refused', 60);
  } });
  await reaches(one, 'open');
  assert.ok(one.reasons.includes('token_expired'), `${one.reasons}`);
  one.halley.close();
});

test('what the token doesn\'t allow is refused; requests get a new token, too', async () => {
  const poor = client(halley.publicUrl, { token: mint(key, { sub: 'poor' }) });
  await assert.rejects(poor.halley.publish('room', 1), { code: 'right_missing' });
  await assert.rejects(poor.halley.presence('other'), { code: 'right_missing', status: 403 });
  poor.halley.close();
  const there = client(halley.publicUrl, { token: tokenOf('there', 600) });
  const one = client(halley.publicUrl, { token: () => tokenOf('asker') });
  await Promise.all([reaches(there, 'open'), reaches(one, 'open')]);
  await until('a session', async () => await sessionsOf(halley, 'there') === 1);
  for (let n = 0; n < 4 * TOKEN_S; n += 1) {
    assert.equal((await one.halley.presence('there')).online, true);
    await sleep(500);
  }
  for (const { halley: each } of [one, there]) each.close();
});

test('the lines of README.md do what they say', async () => {
  const readme = readFileSync(new URL('../README.md', import.meta.url), 'utf8');
  const code = readme.split('```js\n')[1].split('```')[0];
  assert.ok(code.trim().split('\n').length <= 10);
  const lines = code.replace(/^import .*$/m, '')
    .replace('https://push.example.org', halley.publicUrl);
  const seen = { shown: [], logged: [], reloads: 0 };
  const AsyncFunction = (async () => {}).constructor;
  const run = new AsyncFunction('connect', 'fetch', 'show', 'reload', 'banner', 'console',
    `${lines}`);
  const banner = {};
  let made;
  const ending = run(
    (url, options) => { made = client(url, options).halley; return made; },
    async () => ({ text: () => tokenOf('reader', 60) }),
    (data) => seen.shown.push(data), () => { seen.reloads += 1; }, banner,
    { log: (what) => seen.logged.push(what) },
  );
  await until('it is shown', () => seen.shown.length === 1);
  assert.deepEqual(seen.shown, [{ text: 'hello' }]);
  assert.equal(banner.hidden, true);
  await until('it loops', () => publish(halley, 'reader', 'more').then(() =>
    seen.logged.at(-1) === 'more'));
  made.close();
  await ending;
  assert.equal(banner.hidden, false);
});
