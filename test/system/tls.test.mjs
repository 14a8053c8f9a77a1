// http.md 15, from outside: TLS by node's own tls and https, `ws` and curl, on the real release.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { copyFileSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { connect } from 'node:tls';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { X509Certificate } from 'node:crypto';
import { after, before } from 'node:test';
import { Certificates } from '../lib/certificates.mjs';
import { api, curl, follow, publish, sessionsOf } from '../lib/client.mjs';
import { assertError, assertEvent } from '../lib/expect.mjs';
import { isAlive, kill, prepare, start, test } from '../lib/halley.mjs';
import { metric } from '../lib/metrics.mjs';
import { Raw, exchange } from '../lib/raw.mjs';
import { closeStreams, open, sse } from '../lib/streams.mjs';
import { tls } from '../lib/trust.mjs';
import { sleep, until, within } from '../lib/wait.mjs';

const HANDSHAKE_MS = 1_500;
const folder = mkdtempSync(join(tmpdir(), 'halley-tls-'));
const certificates = new Certificates(folder);
const ca = readFileSync(certificates.file('ca.pem'));
Object.assign(tls, { ca });

let halley;
before(async () => {
  halley = await start({ settings: {
    ...certificates.settings('PUBLIC'), ...certificates.settings('API') } });
});
after(async () => {
  closeStreams();
  await halley?.stop();
  rmSync(folder, { recursive: true, force: true });
});

/** A handshake with the public listener; gives the socket, or throws what it ended with. */
function shake(options = {}, port = halley.publicPort) {
  const socket = connect({ port, host: '127.0.0.1', ca, ...options });
  socket.on('error', () => {});
  return within('a handshake', new Promise((resolve, reject) => {
    socket.once('secureConnect', () => resolve(socket));
    socket.once('error', reject);
  }));
}

const counted = (name, on = halley) => metric(on, `halley_edge_${name}_total`);

const serial = (pem) => new X509Certificate(pem).serialNumber;

test('15.1: "speaks TLS 1.3 and 1.2, and nothing else"', async () => {
  for (const version of ['TLSv1.2', 'TLSv1.3']) {
    const socket = await shake({ minVersion: version, maxVersion: version });
    assert.equal(socket.getProtocol(), version);
    assert.equal(socket.authorized, true);
    socket.destroy();
  }
  const old = { minVersion: 'TLSv1.1', maxVersion: 'TLSv1.1', ciphers: 'DEFAULT@SECLEVEL=0' };
  await assert.rejects(shake(old), { code: /_ALERT_(PROTOCOL_VERSION|HANDSHAKE_FAILURE)$/ });
});

test('15.2: http/1.1 is agreed on, h2 alone is refused with no_application_protocol', async () => {
  const socket = await shake({ ALPNProtocols: ['h2', 'http/1.1'] });
  assert.equal(socket.alpnProtocol, 'http/1.1');
  socket.destroy();
  await assert.rejects(shake({ ALPNProtocols: ['h2'] }),
    { code: 'ERR_SSL_TLSV1_ALERT_NO_APPLICATION_PROTOCOL' });
});

test('15.3: sessions are resumed by tickets', async () => {
  for (const version of ['TLSv1.2', 'TLSv1.3']) {
    const options = { minVersion: version, maxVersion: version };
    const first = connect({ port: halley.publicPort, host: '127.0.0.1', ca, ...options });
    const session = await within('a ticket', new Promise((resolve) => {
      first.once('session', resolve);
    }));
    assert.equal(first.isSessionReused(), false);
    first.destroy();
    const second = await shake({ ...options, session });
    assert.equal(second.isSessionReused(), true);
    second.destroy();
  }
});

for (const [transport, openOne] of Object.entries(open)) {
  test(`events over TLS: ${transport}`, async () => {
    const user = `by-${transport}`;
    await follow(halley, [user, `of-${transport}`]);
    const stream = await openOne(halley, user);
    await until('the session', async () => await sessionsOf(halley, user) === 1);
    for (let n = 0; n < 20; n += 1) await publish(halley, `of-${transport}`, n);
    for (let n = 0; n < 20; n += 1) assertEvent(await stream.event(), `of-${transport}`, n);
    stream.close();
  });
}

test('a POST by curl, with the CA and without', async () => {
  const args = ['-d', '{"subject":"curl","data":1}', `${halley.apiUrl}/v1/events`];
  const answer = await curl(['--cacert', certificates.file('ca.pem'), ...args]);
  assert.equal(answer.status, 200, answer.stderr);
  const CANNOT_VERIFY = 60;
  assert.equal((await curl(args)).code, CANNOT_VERIFY);
  await until('its alert is counted', async () => await counted('tls_alerts') === 1);
});

test('a large body both ways', async () => {
  const pairs = Array.from({ length: 40_000 }, (_, n) => [`u${n}`, 'large']);
  assert.equal((await follow(halley, ...pairs)).added, pairs.length);
  const { body } = await api(halley, 'GET', '/v1/subjects/large/followers?limit=1000');
  assert.equal(JSON.parse(body).followers.length, 1_000);
});

test('15.7: "Plain HTTP at a listener of TLS is answered by a plain 400"', async () => {
  for (const port of [halley.publicPort, halley.apiPort]) {
    const answer = await exchange(port, 'GET /v1/stream?user=u HTTP/1.1\r\nHost: h\r\n\r\n');
    assertError(answer, 400);
    assert.equal(answer.json.error.code, 'https_expected');
    assert.match(answer.json.error.message, /https:\/\//);
  }
});

test('15.5: a handshake that takes too long is closed', async () => {
  // Of its own: who is honest may be slow here, too.
  const strict = await start({ settings: { ...certificates.settings('PUBLIC'),
    HALLEY_LIMITS_TLS_HANDSHAKE_MS_MAX: `${HANDSHAKE_MS}` } });
  const started = Date.now();
  const raws = [await Raw.open(strict.publicPort), await Raw.open(strict.publicPort)];
  raws[1].send(Buffer.from([22, 3, 1, 0, 200, 1]));
  for (const raw of raws) await until('it is closed', () => raw.isClosed, 6 * HANDSHAKE_MS);
  assert.ok(Date.now() - started > HANDSHAKE_MS / 2);
  await until('both are counted', async () => await counted('tls_handshakes_late', strict) === 2);
  await strict.stop();
});

test('15.9: new certificates for new connections, and streams stay', async () => {
  await follow(halley, ['rotated', 'rotation']);
  const stream = await sse(halley, 'rotated');
  const before = serial(readFileSync(certificates.file('server.pem')));
  certificates.sign('server', 'ca');
  const now = serial(readFileSync(certificates.file('server.pem')));
  assert.notEqual(now, before);
  const shown = async () => {
    const socket = await shake();
    const { serialNumber } = socket.getPeerCertificate();
    socket.destroy();
    return serialNumber;
  };
  await until('the new one is shown', async () => await shown() === now);
  // A look between the certificate and its key would have counted; the edge says it in a second.
  await sleep(1_200);
  const unusable = await counted('certificates_unusable');
  const good = ['server.pem', 'server.key'].map((name) => certificates.file(name));
  good.forEach((file) => copyFileSync(file, `${file}.kept`));
  const { length } = halley.log;
  copyFileSync(certificates.file('ca.key'), good[1]);
  const named = () => ['public', 'api'].every((listener) =>
    new RegExp(`${listener}\\.tls\\.key: .* is not the key`).test(halley.log.slice(length)));
  await until('the log names the key of each listener', named);
  assert.equal(await shown(), now);
  good.forEach((file) => copyFileSync(`${file}.kept`, file));
  await publish(halley, 'rotation', 'after');
  assertEvent(await stream.event(), 'rotation', 'after');
  await until('one is counted for each listener',
    async () => await counted('certificates_unusable') >= unusable + 2);
  stream.close();
});

test('a client that reads late gets everything, in order', async () => {
  await follow(halley, ['late', 'much']);
  const socket = await shake();
  socket.write('GET /v1/stream?user=late HTTP/1.1\r\nHost: h\r\n'
    + 'Accept: application/x-ndjson\r\n\r\n');
  await until('the session', async () => await sessionsOf(halley, 'late') === 1);
  socket.pause();
  const data = 'x'.repeat(20_000);
  const COUNT = 50;
  for (let n = 0; n < COUNT; n += 1) await publish(halley, 'much', `${n} ${data}`);
  let text = '';
  socket.on('data', (part) => { text += part; });
  socket.resume();
  const numbers = () => [...text.matchAll(/"data":"(\d+) x{20000}"/g)].map(([, n]) => Number(n));
  await until('all have come', () => numbers().length === COUNT);
  assert.deepEqual(numbers(), Array.from({ length: COUNT }, (_, n) => n));
  socket.destroy();
});

test('kill -9 of the brain: streams over TLS stay; the edge is adopted', async () => {
  await follow(halley, ['staying', 'faults']);
  const stream = await sse(halley, 'staying');
  const edge = halley.edgePid();
  await halley.killBrain();
  assert.equal(isAlive(edge), true);
  await halley.start();
  assert.equal(halley.edgePid(), edge, 'the restarted brain adopts the edge');
  await until('the session', async () => await sessionsOf(halley, 'staying') === 1);
  await publish(halley, 'faults', 'after');
  assertEvent(await stream.event(), 'faults', 'after');
  stream.close();
});

test('kill -9 of the edge: the next one speaks TLS as well', async () => {
  const edge = halley.edgePid();
  kill(edge, 'SIGKILL');
  await until('another edge', () => halley.edgePids().some((pid) => pid !== edge));
  await until('it shakes hands', () => shake().then((socket) => socket.destroy() ?? true,
    () => false));
});

test('15.4: the API listener asks clients for certificates', async () => {
  certificates.sign('client', 'ca');
  certificates.authority('others');
  certificates.sign('stranger', 'others');
  const shows = (name) => ({ cert: readFileSync(certificates.file(`${name}.pem`)),
    key: readFileSync(certificates.file(`${name}.key`)) });
  Object.assign(tls, shows('client'));
  const other = await start({ settings: { ...certificates.settings('API'),
    HALLEY_API_TLS_CLIENT_CA: certificates.file('ca.pem') } });
  assert.equal((await api(other, 'GET', '/v1/history')).status, 200);
  const url = `${other.apiUrl}/v1/history`;
  const by = (name) => ['--cert', certificates.file(`${name}.pem`),
    '--key', certificates.file(`${name}.key`)];
  const trust = ['--cacert', certificates.file('ca.pem')];
  assert.equal((await curl([...trust, ...by('client'), url])).status, 200);
  for (const args of [trust, [...trust, ...by('stranger')]]) {
    const { status, stderr } = await curl([...args, url]);
    assert.equal(status, 0);
    assert.match(stderr, /alert/);
  }
  await other.stop();
});

test('files that cannot be used are told in one line, and Halley does not start', async () => {
  certificates.sign('another', 'ca');
  const refused = await prepare({ settings: { ...certificates.settings('PUBLIC'),
    HALLEY_PUBLIC_TLS_KEY: certificates.file('another.key') } });
  try {
    refused.spawn();
    assert.equal((await refused.exited()).code, 1);
    assert.match(refused.stderr, /^[^\n]*public\.tls\.key: [^\n]* is not the key of [^\n]*\n$/);
  } finally {
    refused.killAll();
  }
});

test('the client of openssl finds nothing to complain about', () => {
  const client = spawnSync('openssl', ['s_client', '-connect', `127.0.0.1:${halley.publicPort}`,
    '-CAfile', certificates.file('ca.pem'), '-verify_return_error', '-brief'],
  { input: '', encoding: 'utf8', timeout: 30_000 });
  const said = client.stdout + client.stderr;
  assert.equal(client.status, 0, said);
  assert.match(said, /^Verification: OK$/m);
  assert.doesNotMatch(said, /error|alert|unexpected/i);
});
