// docs/internals/sandbox.md, "A user of its own", by the real release: root's edge becomes
// edge.user with a low port and with TLS, and is adopted, replaced and started again as before.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { chmodSync, chownSync, mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after } from 'node:test';
import { Certificates } from '../lib/certificates.mjs';
import { publish } from '../lib/client.mjs';
import { assertEvent } from '../lib/expect.mjs';
import { isAlive, kill, prepare, test } from '../lib/halley.mjs';
import { metric } from '../lib/metrics.mjs';
import { closeStreams, sse } from '../lib/streams.mjs';
import { tls } from '../lib/trust.mjs';
import { until } from '../lib/wait.mjs';

after(closeStreams);

const USER = 'daemon';
const TAKES_ROOT = 'to become another user takes root';
const [LOW_MIN, LOW_MAX] = [600, 1023];
const START_MS = 20_000;

const isRoot = process.getuid() === 0;
const number = (what) => Number(execFileSync('id', [what, USER], { encoding: 'utf8' }));

/** The users of all threads, each once. */
function users(pid) {
  const values = readdirSync(`/proc/${pid}/task`).map((task) => {
    const status = readFileSync(`/proc/${pid}/task/${task}/status`, 'utf8');
    return status.match(/^Uid:\s*(.*)$/m)[1];
  });
  return [...new Set(values)];
}

const own = () => [Array(4).fill(number('-u')).join('\t')];

/** A port below 1024 that is free. */
async function lowPort() {
  for (let port = LOW_MIN; port <= LOW_MAX; port += 1) {
    const server = createServer();
    const free = await new Promise((resolve) => {
      server.once('error', () => resolve(false));
      server.listen(port, '127.0.0.1', () => server.close(() => resolve(true)));
    });
    if (free) return port;
  }
  throw new Error('no low port is free');
}

async function hears(halley, data) {
  const stream = await sse(halley, 'ann');
  await publish(halley, 'ann', data);
  assertEvent(await stream.events.next('the event'), 'ann', data);
  return stream;
}

test('root: edge.user behind a low port, killed, adopted and replaced', async (context) => {
  if (!isRoot) return context.skip(TAKES_ROOT);
  const halley = await prepare({ settings: { HALLEY_EDGE_USER: USER } });
  halley.publicPort = await lowPort();
  halley.settings.HALLEY_PUBLIC_LISTEN = `127.0.0.1:${halley.publicPort}`;
  await halley.start();
  const first = halley.edgePid();
  assert.deepEqual(users(first), own());
  assert.doesNotMatch(halley.log, /runs as root/);
  await hears(halley, 'first');

  // It dies: the brain starts another.
  kill(first, 'SIGKILL');
  await until('another edge runs', () => halley.edgePids().some((pid) => pid !== first));
  await halley.ready();
  const second = halley.edgePid();
  assert.deepEqual(users(second), own());
  const stream = await hears(halley, 'second');

  // The brain dies: the next one adopts it, connections and all.
  await halley.killStarting();
  await halley.start();
  assert.equal(halley.edgePid(), second);
  await publish(halley, 'ann', 'third');
  assertEvent(await stream.events.next('the event'), 'ann', 'third');

  // Started without edge.user, it is replaced.
  await halley.killStarting();
  halley.settings.HALLEY_EDGE_USER = null;
  await halley.start();
  await until('the old edge has gone', () => !isAlive(second), START_MS);
  assert.deepEqual(users(halley.edgePid()), [Array(4).fill('0').join('\t')]);
  await hears(halley, 'fourth');
  await halley.stop();
});

test('root: certificates of edge.user are read again, others refused', async (context) => {
  if (!isRoot) return context.skip(TAKES_ROOT);
  const folder = mkdtempSync(join(tmpdir(), 'halley-user-'));
  const certificates = new Certificates(join(folder, 'tls'));
  const give = (mode) => {
    for (const name of ['server.pem', 'server.key']) {
      chownSync(certificates.file(name), 0, number('-g'));
      chmodSync(certificates.file(name), mode);
    }
  };
  chmodSync(folder, 0o755);
  give(0o600);
  const halley = await prepare({ settings: {
    HALLEY_EDGE_USER: USER, ...certificates.settings('PUBLIC') } });
  try {
    halley.spawn();
    assert.notEqual((await halley.exited()).code, 0);
    assert.match(halley.stderr, /public\.tls\.certificate: .* can't be read by daemon of edge\./);
    give(0o640);
    Object.assign(tls, { ca: readFileSync(certificates.file('ca.pem')) });
    await halley.start();
    await hears(halley, 'by TLS');
    certificates.sign('server', 'ca');
    give(0o640);
    await until('the new certificates are read',
      async () => await metric(halley, 'halley_edge_certificates_read_total') > 0, START_MS);
    await halley.stop();
  } finally {
    rmSync(folder, { recursive: true, force: true });
    halley.killAll();
  }
});

test('a user that does not exist is refused in one line', async () => {
  const halley = await prepare({ settings: { HALLEY_EDGE_USER: 'no-such-user' } });
  try {
    halley.spawn();
    assert.notEqual((await halley.exited()).code, 0);
    const lines = halley.stderr.trim().split('\n').filter((line) => /edge\.user/.test(line));
    assert.equal(lines.length, 1, halley.stderr);
    assert.match(lines[0], /edge\.user = no-such-user: this machine has no such user/);
  } finally {
    halley.killAll();
  }
});
