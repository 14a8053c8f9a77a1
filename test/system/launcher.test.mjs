// docs/guides/running.md: a brain that dies is started again and no stream notices,
// in a container of its own too; one that refuses isn't; nothing outlives its purpose; SIGHUP reads
// the configuration again and ends nothing.

import assert from 'node:assert/strict';
import { appendFileSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { after } from 'node:test';
import { killProcess, makeKiller } from '../faults/lib/processes.mjs';
import { api, publish } from '../lib/client.mjs';
import { isAlive, kill, LAUNCHER, parentOf, prepare, start, test } from '../lib/halley.mjs';
import { closeStreams, open, sse } from '../lib/streams.mjs';
import { sleep, until } from '../lib/wait.mjs';

const KILLS = 20;
const GIVES_UP_MS_MAX = 240_000;
const TAKES_ROOT = 'a process namespace of its own takes root';

after(closeStreams);

const isReady = (halley) => api(halley, 'GET', '/readyz').then(({ status }) => status === 200);

/** Kills the brain and waits for another. */
async function killed(halley, signal = 'SIGKILL') {
  const brain = halley.brainPid();
  kill(brain, signal);
  await until('another brain serves', async () => !isAlive(brain) && halley.brainPid() !== brain
    && await isReady(halley));
}

/** Publishes by a server that asks again, as it gets no answer while the brain is away. */
const publishAgain = (halley, subject, data) => until(`event ${data} is published`, () =>
  publish(halley, subject, data, { id: `${subject}-${data}` }), 60_000);

/** Kills the brain again and again: events go on, on the same streams. */
async function isKilledOften(halley, kills) {
  const ways = ['sse', 'ndjson', 'ws'];
  const streams = await Promise.all(ways.map((way) => open[way](halley, 'ann')));
  await Promise.all(streams.map((stream) => stream.place()));
  const edge = halley.edgePid();
  for (let n = 1; n <= kills; n += 1) {
    kill(halley.brainPid(), 'SIGKILL');
    await publishAgain(halley, 'ann', n);
    for (const stream of streams) {
      assert.equal((await stream.event(`event ${n}`)).data, n, `kill ${n}`);
    }
  }
  assert.equal(halley.edgePid(), edge);
  assert.equal(halley.hasExited, false);
  for (const stream of streams) stream.close();
}

test('kill -9 of the brain, again and again: no stream is lost and events go on', async () => {
  const halley = await start();
  await isKilledOften(halley, 5);
  const told = halley.stderr.match(/the brain was killed by signal 9; it is started again/g);
  assert.equal(told.length, 5);
  assert.deepEqual(await halley.stop(), { code: 0, signal: null });
});

test('the same where the launcher is process 1, and SIGTERM ends all', async (context) => {
  if (process.getuid() !== 0) return context.skip(TAKES_ROOT);
  const halley = await prepare();
  halley.within = ['unshare', '--pid', '--fork', '--mount-proc'];
  await halley.start();
  await isKilledOften(halley, KILLS);
  const brain = halley.brainPid();
  const launcher = parentOf(brain);
  assert.match(readFileSync(`/proc/${launcher}/status`, 'utf8'), /^NSpid:\s+\d+\s+1$/m);
  // What has lost its parent is its child, and is not left as a zombie.
  const edge = halley.edgePid();
  kill(edge, 'SIGKILL');
  await until('another edge', async () => halley.edgePids().some((pid) => pid !== edge)
    && await isReady(halley));
  assert.throws(() => process.kill(edge, 0), { code: 'ESRCH' });
  kill(launcher, 'SIGTERM');
  assert.deepEqual(await halley.exited(), { code: 0, signal: null });
  assert.ok(!isAlive(brain));
  halley.remove();
});

test('however a brain that served has ended: it is started again', async () => {
  const halley = await prepare();
  const killer = makeKiller(halley.folder);
  Object.assign(halley.settings, killer.environment);
  await halley.start();
  const stream = await sse(halley, 'ann');
  for (const signal of ['SIGSEGV', 'SIGABRT', 'SIGBUS']) await killed(halley, signal);
  // One of its own processes, without which there is no brain.
  const brain = halley.brainPid();
  await until('it ends without its store', async () => {
    await killProcess(killer).catch(() => {});
    return !isAlive(brain);
  }, 60_000);
  await until('another brain serves', () => isReady(halley), 60_000);
  await publishAgain(halley, 'ann', 1);
  assert.equal((await stream.event()).data, 1);
  assert.match(halley.stderr, /the brain ended with status 1; it is started again/);
  assert.deepEqual(await halley.stop(), { code: 0, signal: null });
});

test('a brain that refuses its configuration: no other is started, no edge left', async () => {
  const halley = await prepare({ conf: 'drain.time = 1s\n' });
  await halley.start();
  const stream = await sse(halley, 'ann');
  appendFileSync(join(halley.folder, 'halley.conf'), 'public.lisen = 1\n');
  kill(halley.brainPid(), 'SIGKILL');
  assert.deepEqual(await halley.exited(), { code: 1, signal: null });
  assert.match(halley.stderr, /^halley: halley\.conf: there is no key public\.lisen/m);
  await stream.ended();
  assert.deepEqual(halley.edgePids(), []);
  halley.remove();
});

test('a brain that dies again and again: the launcher gives up and leaves no edge', async () => {
  const halley = await start({ settings: { HALLEY_DRAIN_TIME: '1s' } });
  const stream = await sse(halley, 'ann');
  await until('it gives up', () => {
    if (!halley.hasExited) kill(halley.brainPid(), 'SIGKILL');
    return halley.hasExited;
  }, GIVES_UP_MS_MAX);
  const { code } = await halley.exited();
  assert.equal(code, 137);
  assert.match(halley.stderr, /^halley: the brain was killed by signal 9, and it is not started /m);
  await stream.ended();
  assert.deepEqual(halley.edgePids(), []);
  halley.remove();
});

test('SIGTERM while no brain runs, between two tries, ends all', async () => {
  const halley = await start({ settings: { HALLEY_DRAIN_TIME: '1s' } });
  for (let n = 0; n < 5; n += 1) {
    kill(await until('a brain to kill', () => halley.brainPid()), 'SIGKILL');
    await until('it is gone', () => halley.stderr.match(/it is started again/g)?.length > n);
  }
  assert.notEqual((await halley.terminate()).signal, 'SIGKILL');
  assert.deepEqual(halley.edgePids(), []);
  halley.remove();
});

// The emulator loses a SIGTERM that comes before it listens, and a brain that is asked to stop
// before it knows its edge ends with status 0 and leaves the edge.
for (const ms of [0, 150, 300, 450, 600, 900]) {
  test(`SIGTERM while a new brain begins, after ${ms} ms: its edge ends, too`, async () => {
    const halley = await start({ settings: { HALLEY_DRAIN_TIME: '1s' } });
    kill(halley.brainPid(), 'SIGKILL');
    await until('it is gone', () => halley.stderr.includes('it is started again'));
    await sleep(ms);
    await halley.terminate();
    assert.deepEqual(halley.edgePids(), []);
    halley.remove();
  });
}

/** Starts it by a launcher that is changed so. */
async function changed(change) {
  const halley = await prepare({ settings: { HALLEY_DRAIN_TIME: '1s' } });
  const launcher = join(halley.folder, 'changed');
  const text = readFileSync(LAUNCHER, 'utf8');
  assert.notEqual(change(text), text);
  const written = change(text).replace(/^release="(?!\/)/m, `$&${dirname(LAUNCHER)}/`);
  writeFileSync(launcher, written, { mode: 0o755 });
  halley.within = ['bash', '-c', 'exec "$1" foreground', 'bash', launcher];
  return halley.start();
}

test('a brain that could not say that it is ready is asked to stop, and drains', async () => {
  const halley = await changed((text) => text.replace('ready) ready=yes ;;', '')
    .replace(/^START_SECONDS_MAX=\d+$/m, 'START_SECONDS_MAX=1'));
  const stream = await sse(halley, 'ann');
  await sleep(2_000);
  await halley.terminate();
  await stream.ended();
  assert.match(halley.log, /drained after/);
  halley.remove();
});

// On a busy machine a read with a bound of milliseconds ends before it begins: bash sets the time,
// has no processor for that long, and finds it over.
test('SIGTERM where the launcher has no processor for a moment: the brain drains', async () => {
  const halley = await changed((text) => text.replace(/^set -u$/m, `$&
read() {
    local word before=''
    for word in "$@"; do
        [ "$before" != -t ] || [[ ! "$word" =~ ^0?\\.0 ]] || return 142
        before=$word
    done
    builtin read "$@"
}`));
  const stream = await sse(halley, 'ann');
  await halley.terminate();
  await stream.ended();
  assert.match(halley.log, /drained after/);
  halley.remove();
});

for (const ms of [200, 700]) {
  test(`SIGTERM while the first brain begins, after ${ms} ms: all end`, async () => {
    const halley = (await prepare({ settings: { HALLEY_DRAIN_TIME: '1s' } })).spawn();
    await sleep(ms);
    await halley.terminate();
    assert.deepEqual(halley.edgePids(), []);
    halley.remove();
  });
}

test('kill -9 of the launcher: brain and edge end, too', async () => {
  const halley = await start({ settings: { HALLEY_DRAIN_TIME: '1s' } });
  const pids = [halley.brainPid(), halley.edgePid()];
  const stream = await sse(halley, 'ann');
  kill(halley.launcherPid, 'SIGKILL');
  await stream.ended();
  await until('both are gone', () => !pids.some(isAlive));
  await halley.exited();
  await halley.start();
  await halley.stop();
});

test('SIGHUP reads the configuration again, and ends nothing', async () => {
  const halley = await prepare({ conf: 'log.level = notice\n' });
  await halley.start();
  const stream = await sse(halley, 'ann');
  const pids = [halley.launcherPid, halley.brainPid(), halley.edgePid()];
  const set = (text) => appendFileSync(join(halley.folder, 'halley.conf'), text);
  const logged = (what) => until(`${what} in the log`, () => halley.log.includes(what));
  for (const pid of pids) kill(pid, 'SIGHUP');
  await logged('the configuration was read again, and nothing in it has changed');

  set('drain.time = 2s\nlimits.groups_max = 7\n');
  kill(pids[0], 'SIGHUP');
  await logged('read again; at the next start take effect drain.time, limits.groups_max');

  set('history.retention = soon\npublic.lisen = 1\n');
  kill(pids[1], 'SIGHUP');
  await logged('and what is in force stays: halley.conf: there is no key public.lisen');
  await logged('and what is in force stays: history.retention: must be a duration');

  const level = (name) => {
    writeFileSync(join(halley.folder, 'halley.conf'), `log.level = ${name}\n`);
    kill(pids[0], 'SIGHUP');
  };
  level('error');
  await until('the level is in force', async () => {
    const before = halley.log.length;
    kill(pids[0], 'SIGHUP');
    await sleep(500);
    return halley.log.length === before;
  });
  level('notice');
  await logged('the configuration was read again; in force is log.level');
  await publish(halley, 'ann', 1);
  assert.equal((await stream.event()).data, 1);
  assert.deepEqual([halley.launcherPid, halley.brainPid(), halley.edgePid()], pids);
  assert.deepEqual(await halley.stop(), { code: 0, signal: null });
});

test('SIGHUP while a brain starts kills none', async () => {
  const halley = await prepare();
  halley.spawn();
  await until('the brain starts', () => halley.brainPid());
  while (!await isReady(halley).catch(() => false)) {
    assert.equal(halley.hasExited, false, halley.logTail);
    kill(halley.launcherPid, 'SIGHUP');
    await until('a moment', () => true);
  }
  assert.equal(halley.stderr, '');
  assert.deepEqual(await halley.stop(), { code: 0, signal: null });
});

test('a terminal that is closed ends all', async () => {
  const halley = await prepare({ settings: { HALLEY_DRAIN_TIME: '1s' } });
  halley.within = ['setsid', 'bash', '-c', 'exec script -qec "$*" /dev/null', '_'];
  await halley.start();
  const pids = [parentOf(halley.brainPid()), halley.brainPid(), halley.edgePid()];
  const stream = await sse(halley, 'ann');
  // Whoever holds the terminal, as a window or sshd does, is gone.
  kill(halley.launcherPid, 'SIGKILL');
  await stream.ended();
  await until('all are gone', () => !pids.some(isAlive));
  halley.remove();
});
