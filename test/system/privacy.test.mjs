// No secret gets out: secrets are planted in a whole life of the real release, at log.level =
// debug, through good and bad requests, a crash of each process and a drain; then they are looked
// for in all that it wrote (docs/internals/auth.md, "Crash reports without secrets").

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join, relative } from 'node:path';
import { after } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { api, http, publish } from '../lib/client.mjs';
import { kill, prepare, test } from '../lib/halley.mjs';
import { closeStreams, sse, ws } from '../lib/streams.mjs';
import { bearer, makeKey, mint } from '../lib/token.mjs';
import { until } from '../lib/wait.mjs';

after(closeStreams);

const LAUNCHER = process.env.LAUNCHER ?? fileURLToPath(new URL('../../halley', import.meta.url));
const run = promisify(execFile);

const HMAC_SECRET = 'planted-hmac-secret-0123456789-abcdefghij';
const EVENT_DATA = 'planted-event-data-4711';
const signer = { ...makeKey('HS256', undefined, HMAC_SECRET), kid: undefined };

/** Every file below a folder, with its bytes. */
function filesOf(folder) {
  return readdirSync(folder, { recursive: true }).map((name) => join(folder, `${name}`))
    .filter((path) => statSync(path).isFile())
    .map((path) => ({ path: relative(folder, path), bytes: readFileSync(path) }));
}

test('no secret is in logs, metrics, traces, the configuration shown, dumps or files', async () => {
  const halley = await prepare({ settings: {
    HALLEY_AUTH_MODE: 'jwt', HALLEY_AUTH_HMAC_SECRET: HMAC_SECRET, HALLEY_LOG_LEVEL: 'debug',
    HALLEY_DRAIN_TIME: '500ms',
  } });
  const command = async (...args) => (await run(LAUNCHER, args, {
    cwd: halley.folder, env: { ...process.env, ...halley.settings }, timeout: 60_000 })).stdout;
  const scopes = 'publish,follow,read,admin';
  const key = (await command('key', 'create', 'web', '--scope', scopes)).trim();
  const keySecret = key.split('_')[2];
  const token = mint(signer, { sub: 'ann', halley: { publish: ['*'], follow: ['*'] } });
  const forged = `${token.slice(0, -10)}AAAAAAAAAA`;
  const [, claims, signature] = token.split('.');
  await halley.start();
  const shown = bearer(key);
  const told = [];
  const say = async (...args) => told.push((await api(halley, ...args)).body);

  // Good requests, and bad ones that carry what is secret wherever a request can.
  const streams = [await sse(halley, 'ann', bearer(token)),
    await ws(halley, 'ann', { headers: bearer(token) })];
  await publish(halley, 'ann', EVENT_DATA, {}).catch(() => {});
  const sent = { subject: 'ann', data: EVENT_DATA };
  const event = await api(halley, 'POST', '/v1/events', sent, shown);
  assert.equal(event.status, 200);
  for (const stream of streams) await stream.event();
  for (const path of ['/v1/stream', '/v1/poll', '/v1/me/follows', '/nothing']) {
    for (const secret of [token, forged, key]) {
      const url = `${halley.publicUrl}${path}?timeout=0&token=${secret}`;
      const abort = { headers: { accept: 'image/png' } };
      told.push((await http('GET', url, path === '/v1/stream' ? abort : {})).body);
      const refused = await http('POST', halley.publicUrl + path,
        { headers: bearer(secret), body: EVENT_DATA });
      told.push(refused.body);
    }
  }
  for (const bad of [`${key}x`, `${key.slice(0, -4)}0000`, token]) {
    await say('POST', '/v1/events', { subject: 'ann', data: EVENT_DATA }, bearer(bad));
  }
  await say('POST', '/v1/events', `{"subject":"ann","data":"${EVENT_DATA}`, shown);
  await say('POST', '/v1/follows', `${EVENT_DATA} ${EVENT_DATA} ${EVENT_DATA}\n`,
    { ...shown, 'content-type': 'text/plain' });
  await say('GET', '/metrics', undefined, shown);
  await say('GET', `/v1/events/${event.json.id}/trace?user=ann`, undefined, shown);
  await say('GET', '/v1/users/ann/sessions', undefined, shown);
  told.push(await command('config'));

  // Each process is killed in the midst of it, and what comes back drains.
  const ready = () => until('it is ready again',
    async () => (await api(halley, 'GET', '/readyz').catch(() => ({}))).status === 200, 60_000);
  kill(halley.edgePid(), 'SIGSEGV');
  await ready();
  await halley.killBrain();
  const edge = halley.edgePids();
  let log = halley.log;
  assert.equal(edge.length, 1, 'the edge outlives its brain');
  await halley.start();
  await say('GET', '/metrics', undefined, shown);
  await halley.terminate();
  log += halley.log;

  const secrets = { token, forged, signature, claims, key, keySecret, HMAC_SECRET,
    'the secret in Base64': Buffer.from(HMAC_SECRET).toString('base64url') };
  assert.ok(log.length > 1_000, 'there is a log to look at');
  const places = [{ path: 'log', bytes: Buffer.from(log) },
    { path: 'answers', bytes: Buffer.from(told.join('\n')) }, ...filesOf(halley.folder)];
  for (const { path, bytes } of places) {
    for (const [name, secret] of Object.entries(secrets)) {
      assert.ok(!bytes.includes(secret), `${name} is in ${path}`);
    }
    // The history keeps events, that is its purpose; the log and the answers don't.
    const isHistory = path.startsWith(join('data', 'history'));
    assert.ok(isHistory || !bytes.includes(EVENT_DATA), `event data is in ${path}`);
  }
  assert.ok(places.some(({ path, bytes }) => path.startsWith('data') && bytes.includes(EVENT_DATA)),
    'the search finds what is there');
  halley.remove();
});
