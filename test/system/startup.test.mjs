// contract.md, "From a fresh checkout": "An unknown key, a bad value, a port in use: one clear
// line on stderr that names the key, and exit 1", and how everything is stopped.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import {
  closeSync, constants, existsSync, mkdirSync, openSync, readdirSync, writeFileSync, writeSync,
} from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { after } from 'node:test';
import { follow, publish, sessionsOf } from '../lib/client.mjs';
import { assertEvent } from '../lib/expect.mjs';
import { freePort, isAlive, kill, listeningPorts, prepare, start, test } from '../lib/halley.mjs';
import { closeStreams, sse } from '../lib/streams.mjs';
import { until } from '../lib/wait.mjs';

after(closeStreams);

/** Starts, and insists on exit 1 and one line on stderr that has all of `parts`. */
async function assertRefused(options, ...parts) {
  const halley = await prepare(options);
  try {
    halley.spawn();
    const exit = await halley.exited();
    assert.equal(exit.code, 1, `exit code; the log:\n${halley.logTail}`);
    const lines = halley.stderr.trimEnd().split('\n');
    assert.equal(lines.length, 1, `one line on stderr, but got:\n${halley.stderr}`);
    for (const part of parts) {
      assert.ok(lines[0].includes(part), `${JSON.stringify(part)} in: ${lines[0]}`);
    }
    assert.doesNotMatch(halley.log, /\bready\b/, 'nothing was ready');
    await until('no edge is left', () => halley.edgePids().length === 0);
    assert.ok(!readdirSync(halley.folder).some((name) => name.includes('crash')), 'a crash dump');
  } finally {
    halley.killAll();
  }
}

test('an unknown key in halley.conf is named', async () => {
  await assertRefused({ conf: 'public.lisen = 127.0.0.1:1\n' }, 'public.lisen');
});

const badValues = [
  ['public.listen', 'nonsense'], ['api.listen', '127.0.0.1:99999'], ['edge.workers', 'many'],
  ['edge.workers', '0'], ['auth.mode', 'maybe'], ['store.backend', 'oracle'],
  ['history.retention', 'soon'], ['node.name', 'no at sign'],
];
for (const [key, value] of badValues) {
  const variable = `HALLEY_${key.toUpperCase().replace('.', '_')}`;
  test(`a bad value is named with its key: ${key} = ${value}`, async () => {
    await assertRefused({ conf: `${key} = ${value}\n`, settings: { [variable]: null } }, key);
  });
  test(`a bad value in the environment is named with its key: ${variable}=${value}`, async () => {
    await assertRefused({ settings: { [variable]: value } }, key);
  });
}

test('all that is wrong is named at once, a line for each', async () => {
  const halley = await prepare({
    conf: 'public.lisen = 127.0.0.1:1\nstore.backend = oracle\ndrain.time = soon\n',
    settings: { HALLEY_NODE_NAME: 'nobody', HALLEY_EDGE_WORKER: '1' } });
  const parts = ['public.lisen', 'HALLEY_EDGE_WORKER', 'drain.time', 'store.backend', 'node.name'];
  try {
    halley.spawn();
    assert.equal((await halley.exited()).code, 1);
    const check = await halley.command('config');
    assert.equal(check.code, 1);
    for (const text of [halley.stderr, check.stderr]) {
      const lines = text.trimEnd().split('\n');
      assert.equal(lines.length, parts.length, text);
      for (const [n, part] of parts.entries()) {
        assert.ok(lines[n].startsWith('halley: ') && lines[n].includes(part), lines[n]);
      }
    }
    // What doesn't go together is named when each value is right.
    halley.conf = 'auth.mode = jwt\nhistory.retention_of = room/*\n';
    halley.settings.HALLEY_NODE_NAME = null;
    halley.settings.HALLEY_EDGE_WORKER = null;
    halley.spawn();
    assert.equal((await halley.exited()).code, 1);
    assert.match(halley.stderr, /^halley: history\.retention_of.*\nhalley: auth\.mode.*\n$/);
  } finally {
    halley.killAll();
  }
});

test('a line of halley.conf that is none is named by its number', async () => {
  await assertRefused({ conf: 'auth.mode = none\nthis is no setting\n' }, 'halley.conf');
});

test('auth.mode = none on a public address refuses to start', async () => {
  const settings = { HALLEY_PUBLIC_LISTEN: `0.0.0.0:${await freePort()}` };
  await assertRefused({ settings }, 'auth.mode', 'public.listen');
});

test('a data directory that cannot be made is named', async () => {
  await assertRefused({ settings: { HALLEY_DATA_DIR: '/proc/halley' } }, 'data.dir');
});

test('a data directory that is a file is named', async () => {
  const halley = await prepare();
  const path = join(halley.folder, 'file');
  writeFileSync(path, '');
  try {
    await assertRefused({ settings: { HALLEY_DATA_DIR: path } }, 'data.dir');
  } finally {
    halley.killAll();
  }
});

for (const key of ['public.listen', 'api.listen']) {
  test(`a port in use is named with its key: ${key}`, async () => {
    const server = createServer();
    await new Promise((resolve) => { server.listen(0, '127.0.0.1', resolve); });
    const address = `127.0.0.1:${server.address().port}`;
    try {
      const variable = `HALLEY_${key.toUpperCase().replace('.', '_')}`;
      await assertRefused({ settings: { [variable]: address } }, key, address);
    } finally {
      server.close();
    }
  });
}

test('./halley config refuses what a start would: files that are not there', async () => {
  const halley = await prepare();
  try {
    for (const [settings, line] of [
      [{ HALLEY_PUBLIC_TLS_CERTIFICATE: '/nowhere/a.pem', HALLEY_PUBLIC_TLS_KEY: '/nowhere/a.key' },
        /^halley: public\.tls\.certificate = \/nowhere\/a\.pem: cannot be read: no such file.*\n$/],
      [{ HALLEY_AUTH_MODE: 'jwt', HALLEY_AUTH_KEYS: '/nowhere/keys' },
        /^halley: auth\.keys.*\/nowhere\/keys.*\n$/],
    ]) {
      const before = { ...halley.settings };
      Object.assign(halley.settings, settings);
      const { code, stdout, stderr } = await halley.command('config');
      assert.equal(code, 1);
      assert.match(stderr, line);
      assert.equal(stdout, '');
      halley.settings = before;
    }
    assert.equal((await halley.command('config')).code, 0);
  } finally {
    halley.killAll();
  }
});

test('a start refuses what it would miss hours later: secrets that are not there', async () => {
  const hooks = { HALLEY_HOOKS_URL: 'http://127.0.0.1:9/', HALLEY_HOOKS_EVENTS: 'opened' };
  const backends = { HALLEY_REMOTE_BACKENDS: 'shop@127.0.0.1',
    HALLEY_REMOTE_LISTEN: `127.0.0.1:${await freePort()}` };
  await assertRefused({ settings: { ...hooks, HALLEY_HOOKS_SECRET_FILE: 'none' } },
    'hooks.secret_file = /', '/none: cannot be read: no such file');
  await assertRefused({ settings: { ...backends, HALLEY_REMOTE_SECRET_FILE: '/nowhere' } },
    'remote.secret_file = /nowhere: cannot be read: no such file');
});

test('a command that is asked for help helps, and one that is misspelt does nothing', async () => {
  const halley = await prepare();
  try {
    const commands = ['foreground', 'drain', 'key', 'backup', 'repair', 'config', 'version'];
    for (const command of commands) {
      for (const option of ['--help', '-h']) {
        const { code, stdout, stderr } = await halley.command(command, option);
        assert.equal(code, 0, command);
        assert.match(stdout, /^usage: \.\/halley <command>\n/);
        assert.equal(stderr, '');
      }
    }
    for (const command of ['foreground', 'drain', 'config', 'version']) {
      const { code, stdout, stderr } = await halley.command(command, '--port=1');
      assert.equal(code, 1, command);
      assert.equal(stdout, '');
      assert.equal(stderr, `halley: ${command} takes no arguments; \`./halley help\` says more\n`);
    }
    for (const [command, words] of [
      ['start', '`./halley foreground` runs Halley'], ['stop', '`./halley drain` stops Halley'],
      ['reload', 'SIGHUP to `./halley foreground`'],
      ['drian', '`./halley help` lists them'],
    ]) {
      const { code, stdout, stderr } = await halley.command(command);
      assert.deepEqual([code, stdout], [1, ''], command);
      const [line, ...more] = stderr.trimEnd().split('\n');
      assert.deepEqual(more, []);
      assert.ok(line.startsWith(`halley: there is no command ${command}; `), line);
      assert.ok(line.includes(words), line);
    }
    assert.match((await halley.command('--version')).stdout, /^halley \d/);
    assert.ok(!existsSync(halley.settings.HALLEY_DATA_DIR), 'nothing was started');
  } finally {
    halley.killAll();
  }
});

test('halley.conf is read, and the environment goes before it', async () => {
  const halley = await prepare();
  halley.conf = `public.listen = 127.0.0.1:1\napi.listen = 127.0.0.1:${halley.apiPort}\n`;
  halley.settings.HALLEY_API_LISTEN = null;
  try {
    await halley.start();
    const stream = await sse(halley, 'conf');
    await publish(halley, 'conf', 1);
    assertEvent(await stream.event(), 'conf', 1);
    stream.close();
  } finally {
    await halley.stop();
  }
});

test('SIGTERM to the launcher stops brain and edge, status 0', async () => {
  const halley = await start();
  const pids = [halley.brainPid(), halley.edgePid()];
  const stream = await sse(halley, 'bye');
  assert.deepEqual(await halley.stop('SIGTERM'), { code: 0, signal: null });
  await stream.ended();
  assert.deepEqual(pids.map(isAlive), [false, false]);
});

test('Ctrl-C (SIGINT to the launcher and to all it started) stops both, status 0', async () => {
  const halley = await start();
  const pids = [halley.brainPid(), halley.edgePid()];
  kill(pids[0], 'SIGINT');
  kill(pids[1], 'SIGINT');
  assert.deepEqual(await halley.stop('SIGINT'), { code: 0, signal: null });
  assert.deepEqual(pids.map(isAlive), [false, false]);
});

test('SIGTERM to the brain is a clean stop of both', async () => {
  const halley = await start();
  kill(halley.brainPid(), 'SIGTERM');
  assert.deepEqual(await halley.exited(), { code: 0, signal: null });
  await halley.stop();
});

test('follows survive a clean stop and start', async () => {
  const halley = await start();
  await follow(halley, ['ann', 'news']);
  const { folder } = halley;
  kill(halley.launcherPid, 'SIGTERM');
  await halley.exited();
  await until('the edge has stopped', () => halley.edgePids().length === 0);
  await halley.start();
  assert.equal(halley.folder, folder);
  assert.equal((await follow(halley, ['ann', 'news'])).already, 1);
  await halley.stop();
});

test('a second Halley on the same data directory refuses to start and harms nothing', async () => {
  const first = await start();
  const data = first.settings.HALLEY_DATA_DIR;
  await assertRefused({ settings: { HALLEY_DATA_DIR: data } }, 'data.dir');
  const stream = await sse(first, 'ann');
  await publish(first, 'ann', 1);
  await stream.event();
  await first.stop();
});

test('two instances side by side know nothing of each other', async () => {
  const [left, right] = await Promise.all([start(), start()]);
  const [onLeft, onRight] = [await sse(left, 'ann'), await sse(right, 'ann')];
  assert.equal((await publish(left, 'ann', 'left')).sessions, 1);
  assertEvent(await onLeft.event(), 'ann', 'left');
  await onRight.quiet();
  onLeft.close();
  onRight.close();
  await left.stop();
  await until('no session', async () => await sessionsOf(right, 'ann') === 0);
  assert.equal((await publish(right, 'ann', 'right')).sessions, 0);
  await right.stop();
});

test('nothing else listens on any port', async () => {
  const halley = await start();
  const ports = [halley.brainPid(), halley.edgePid()].flatMap(listeningPorts);
  assert.deepEqual([...new Set(ports)].sort(), [halley.publicPort, halley.apiPort].sort());
  await halley.stop();
});

test('a stale socket directory of a dead edge is no obstacle', async () => {
  const halley = await start();
  const [brain, edge] = [halley.brainPid(), halley.edgePid()];
  await halley.killBrain();
  kill(edge, 'SIGKILL');
  await until('both are gone', () => !isAlive(brain) && !isAlive(edge));
  mkdirSync(halley.settings.HALLEY_DATA_DIR, { recursive: true });
  await halley.start();
  await halley.stop();
});

test('a log that nobody reads: all are served, and it ends when it is told to', async () => {
  const halley = await prepare();
  const log = join(halley.folder, 'log');
  execFileSync('mkfifo', [log]);
  const reader = openSync(log, constants.O_RDWR | constants.O_NONBLOCK);
  const fill = () => {
    for (;;) writeSync(reader, Buffer.alloc(4096, '.'));
  };
  assert.throws(fill, { code: 'EAGAIN' }, 'there is no room for a line');
  halley.output = openSync(log, constants.O_WRONLY);
  await halley.start();
  const stream = await sse(halley, 'ann');
  await publish(halley, 'ann', 1);
  assert.equal((await stream.event()).data, 1);
  assert.equal((await halley.terminate()).code, 0);
  await halley.start();
  assert.equal((await halley.command('drain')).code, 0);
  assert.equal((await halley.exited()).code, 0, 'it was asked to stop');
  halley.remove();
  for (const descriptor of [reader, halley.output]) closeSync(descriptor);
});
