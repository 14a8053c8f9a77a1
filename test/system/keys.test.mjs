// Server keys (docs/reference/http-api.md, "Server keys"): the API asks for one as soon as there is
// one, and doesn't leave loopback without; `./halley key` makes, lists and revokes them, whether or
// not a brain runs.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { readFileSync, statSync, unlinkSync } from 'node:fs';
import { join } from 'node:path';
import { after } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { api, http } from '../lib/client.mjs';
import { isAlive, prepare, start, test } from '../lib/halley.mjs';
import { closeStreams, sse } from '../lib/streams.mjs';
import { until } from '../lib/wait.mjs';

after(closeStreams);

const LAUNCHER = process.env.LAUNCHER ?? fileURLToPath(new URL('../../halley', import.meta.url));
const run = promisify(execFile);

/** `./halley key …`; gives `{code, stdout, stderr}`. */
async function key(halley, ...args) {
  const options = { cwd: halley.folder, env: { ...process.env, ...halley.settings },
    timeout: 60_000 };
  try {
    return { code: 0, ...await run(LAUNCHER, ['key', ...args], options) };
  } catch (error) {
    return { code: error.code, stdout: error.stdout, stderr: error.stderr };
  }
}

/** Makes a key and gives the header that shows it. */
async function create(halley, name, scopes) {
  const made = await key(halley, 'create', name, '--scope', scopes);
  assert.equal(made.code, 0, made.stderr);
  assert.match(made.stdout, /^hk_[0-9a-f]{16}_[0-9a-f]{64}\n$/);
  return { authorization: `Bearer ${made.stdout.trim()}` };
}

const code = (answer) => `${answer.status} ${answer.json?.error?.code}`;
const publish = (halley, headers) =>
  api(halley, 'POST', '/v1/events', { subject: 'ann', data: 1 }, headers);

test('open on loopback until there is a key; a new one works, a revoked one does not', async () => {
  const halley = await start();
  assert.equal((await publish(halley, {})).status, 200);

  const web = await create(halley, 'web', 'publish');
  await until('a key is needed', async () => (await publish(halley, {})).status === 401);
  assert.equal((await publish(halley, web)).status, 200);
  const missing = await publish(halley, {});
  assert.equal(code(missing), '401 key_missing');
  assert.equal(missing.headers['www-authenticate'], 'Bearer realm="halley"');

  const admin = await create(halley, 'ops', 'read,admin');
  assert.equal((await api(halley, 'GET', '/metrics', undefined, admin)).status, 200,
    'at once, without a wait');
  const refused = await api(halley, 'GET', '/metrics', undefined, web);
  assert.equal(code(refused), '403 scope_missing');
  assert.match(refused.json.error.message, /\bread\b/);
  assert.equal(code(await publish(halley, admin)), '403 scope_missing');

  const listed = await key(halley, 'list');
  assert.match(listed.stdout, /^web +[0-9a-f]{16} +publish +\d{4}-/m);
  assert.match(listed.stdout, /^ops +[0-9a-f]{16} +read,admin +\d{4}-/m);

  assert.equal((await key(halley, 'revoke', 'web')).code, 0);
  await until('it is refused', async () => code(await publish(halley, web)) === '401 key_unknown');
  const metrics = (await api(halley, 'GET', '/metrics', undefined, admin)).body;
  assert.match(metrics, /^halley_requests_refused_total\{reason="key_unknown"\} [1-9]/m);
  await halley.stop();
});

test('a key is revoked while the configuration is wrong elsewhere', async () => {
  const halley = await start();
  const web = await create(halley, 'web', 'publish');
  await until('a key is needed', async () => (await publish(halley, {})).status === 401);
  halley.settings.HALLEY_AUTH_MODE = 'zip';
  const revoked = await key(halley, 'revoke', 'web');
  assert.equal(revoked.code, 0, revoked.stderr);
  assert.match(revoked.stderr, /^halley: auth\.mode: .*\nhalley: the keys are those of data\.dir /);
  await until('it is refused', async () => code(await publish(halley, web)) === '401 key_unknown');
  await halley.stop();
});

test('every route needs its scope, and probes need nothing', async () => {
  const halley = await prepare();
  const keys = {};
  for (const scope of ['publish', 'follow', 'read', 'admin']) {
    keys[scope] = await create(halley, scope, scope);
  }
  await halley.start();
  const routes = [
    ['POST', '/v1/events', 'publish'], ['POST', '/v1/follows', 'follow'],
    ['DELETE', '/v1/follows', 'follow'], ['GET', '/v1/history', 'read'],
    ['GET', '/v1/events/e/trace?user=u', 'read'], ['GET', '/v1/subjects/s/followers', 'read'],
    ['GET', '/v1/users/u', 'read'], ['GET', '/v1/users/u/following', 'read'],
    ['GET', '/v1/users/u/sessions', 'read'], ['DELETE', '/v1/users/u/sessions', 'admin'],
    ['GET', '/metrics', 'read'],
  ];
  for (const [method, path, needed] of routes) {
    assert.equal(code(await api(halley, method, path, '')), '401 key_missing', path);
    for (const [scope, headers] of Object.entries(keys)) {
      const { status } = await api(halley, method, path, '', headers);
      assert.equal(status === 403, scope !== needed, `${method} ${path} with ${scope}: ${status}`);
      assert.notEqual(status, 401);
    }
    const elsewhere = await http(method, halley.publicUrl + path, { headers: keys[needed] });
    assert.equal(elsewhere.status, 404, `${method} ${path} on the public listener`);
  }
  assert.equal(code(await api(halley, 'GET', '/nowhere')), '401 key_missing');
  for (const path of ['/healthz', '/readyz']) {
    assert.equal((await api(halley, 'GET', path)).status, 200);
  }
  await halley.stop();
});

test('keys survive a kill -9, and are stored as hashes that only the owner reads', async () => {
  const halley = await start();
  const web = await create(halley, 'web', 'publish');
  const text = web.authorization.slice('Bearer '.length);
  const file = join(halley.settings.HALLEY_DATA_DIR, 'server-keys');
  const stored = readFileSync(file, 'utf8');
  assert.ok(!stored.includes(text.split('_')[2]), 'the secret is not in it');
  assert.ok(stored.includes(createHash('sha256').update(text).digest('hex')));
  assert.equal(statSync(file).mode & 0o777, 0o600);
  assert.ok(!halley.log.includes(text.split('_')[2]));
  const pids = [halley.brainPid(), halley.edgePid()];
  halley.killProcesses();
  await halley.exited();
  await until('both are gone', () => !pids.some(isAlive));
  await halley.start();
  assert.equal(code(await publish(halley, {})), '401 key_missing');
  assert.equal((await publish(halley, web)).status, 200);

  // Who removes the file opens nothing.
  unlinkSync(file);
  await until('it is told', () => halley.log.includes('the previous server keys stay in force'));
  assert.equal(code(await publish(halley, {})), '401 key_missing');
  assert.equal((await publish(halley, web)).status, 200);
  await halley.stop();
});

test('the API listener does not leave loopback without a key', async () => {
  const halley = await prepare();
  halley.settings.HALLEY_API_LISTEN = `0.0.0.0:${halley.apiPort}`;
  halley.spawn();
  assert.equal((await halley.exited()).code, 1);
  assert.match(halley.stderr, /^halley: api\.listen: .*\.\/halley key create [^\n]*\n$/);

  const web = await create(halley, 'web', 'publish');
  await halley.start();
  assert.equal((await publish(halley, web)).status, 200);
  assert.equal(code(await publish(halley, {})), '401 key_missing');

  // Revoking the last one doesn't open it there.
  await key(halley, 'revoke', 'web');
  await until('it is refused', async () => code(await publish(halley, web)) === '401 key_unknown');
  assert.equal(code(await publish(halley, {})), '401 key_missing');
  await halley.stop();
});

test('mistakes at the command line are told in one line', async () => {
  const halley = await prepare();
  const mistakes = [
    [['create', 'web'], 'scope'], [['create', 'a b', '--scope', 'read'], 'name'],
    [['create', 'web', '--scope', 'root'], 'root'], [['revoke', 'web'], 'there is no key web'],
    [[], 'usage'], [['burn'], 'usage'],
  ];
  for (const [args, part] of mistakes) {
    const { code: status, stdout, stderr } = await key(halley, ...args);
    assert.equal(status, 1, args.join(' '));
    assert.equal(stdout, '');
    assert.match(stderr, /^halley: [^\n]*\n$/);
    assert.ok(stderr.includes(part), stderr);
  }
  halley.killAll();
});

test('streams need no server key', async () => {
  const halley = await prepare();
  const web = await create(halley, 'web', 'publish');
  await halley.start();
  const stream = await sse(halley, 'ann');
  await publish(halley, web);
  await stream.event();
  stream.close();
  await halley.stop();
});
