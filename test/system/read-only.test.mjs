// docs/guides/running.md, "A data.dir that takes no writes": what is there is served, the sockets
// between brain and edge are elsewhere, and whatever comes next finds them.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import {
  chmodSync, chownSync, existsSync, mkdirSync, rmSync, statSync, symlinkSync,
} from 'node:fs';
import { join } from 'node:path';
import { after } from 'node:test';
import { api, publish } from '../lib/client.mjs';
import { start, test } from '../lib/halley.mjs';
import { closeStreams, poll, sse } from '../lib/streams.mjs';
import { until } from '../lib/wait.mjs';

const TAKES_ROOT = 'to mount a folder takes root';
const isRoot = process.getuid() === 0;
const NOBODY = 65_534;

after(closeStreams);

const mount = (...words) => execFileSync('mount', words);

/** A Halley that has served from its data.dir, which takes no writes from now on. */
async function withoutWrites() {
  const halley = await start();
  const { cursor } = await poll(halley, 'ann', { timeout: 0 });
  await publish(halley, 'ann', 'before');
  await halley.terminate();
  const data = halley.settings.HALLEY_DATA_DIR;
  mount('--bind', data, data);
  mount('-o', 'remount,bind,ro', data);
  halley.runtime = join(halley.folder, 'run');
  mkdirSync(halley.runtime, { mode: 0o700 });
  halley.settings.XDG_RUNTIME_DIR = halley.runtime;
  return { halley, cursor, data, remove: () => {
    halley.killProcesses();
    execFileSync('umount', ['--lazy', data]);
    halley.remove();
  } };
}

/** It is not ready to take events, so it is not waited for that. */
async function starts(halley) {
  const before = halley.log.length;
  halley.spawn();
  await until('the edge serves', () => halley.hasExited
    || halley.log.slice(before).includes('edge is ready'));
  assert.equal(halley.hasExited, false, halley.logTail);
}

/** By the inode of data.dir, as halley_edge_directory names it. */
function placeIn(base, data, uid = process.getuid()) {
  const { dev, ino } = statSync(data);
  return join(base, `halley-${uid}-${dev}-${ino}`);
}

function socketsOf(halley) {
  const words = execFileSync('cat', [`/proc/${halley.edgePid()}/cmdline`], { encoding: 'utf8' })
    .split('\0');
  return words[words.indexOf('--socket-dir') + 1];
}

async function serves(halley, cursor) {
  const missed = await poll(halley, 'ann', { cursor, timeout: 0 });
  assert.deepEqual(missed.events.map((event) => event.data), ['before']);
  const refused = await api(halley, 'POST', '/v1/events', { subject: 'ann', data: 1 });
  assert.equal(refused.status, 503);
}

test('a data.dir that takes no writes is served, and found again', async (context) => {
  if (!isRoot) return context.skip(TAKES_ROOT);
  const { halley, cursor, data, remove } = await withoutWrites();
  try {
    await starts(halley);
    const place = placeIn(halley.runtime, data);
    assert.equal(socketsOf(halley), place);
    assert.equal(statSync(place).mode & 0o777, 0o700);
    assert.match(halley.log, /takes no writes: the sockets between brain and edge are in /);
    await serves(halley, cursor);
    const stream = await sse(halley, 'ann');
    const edge = halley.edgePid();

    // A brain that is started again, and one of a start of its own, find the edge.
    process.kill(halley.brainPid(), 'SIGKILL');
    await until('another brain serves', () => serves(halley, cursor).then(() => true), 60_000);
    assert.equal(halley.edgePid(), edge);
    await halley.killBrain();
    // Where writes are taken again, the edge stays where it is.
    mount('-o', 'remount,bind,rw', data);
    await halley.start();
    assert.equal(halley.edgePid(), edge);
    await publish(halley, 'ann', 'after');
    assert.equal((await stream.event()).data, 'after');

    const { code, stdout, stderr } = await halley.command('drain');
    assert.equal(code, 0, stdout + stderr);
    assert.equal((await halley.exited()).code, 0);
    assert.equal(existsSync(place), false, 'nothing is left there');
    await starts(halley);
    assert.equal(socketsOf(halley), join(data, 'edge'));
    await halley.terminate();
  } finally {
    remove();
  }
});

test('there, drain finds the brain, and an edge that is left', async (context) => {
  if (!isRoot) return context.skip(TAKES_ROOT);
  const { halley, cursor, remove } = await withoutWrites();
  try {
    await starts(halley);
    await serves(halley, cursor);
    assert.match((await halley.command('drain')).stdout, /drained: the brain/);
    assert.equal((await halley.exited()).code, 0);
    await starts(halley);
    await halley.killBrain();
    assert.match((await halley.command('drain')).stdout, /drained: the edge/);
    assert.deepEqual(halley.edgePids(), []);
  } finally {
    remove();
  }
});

test('what somebody else has made by that name is not used', async (context) => {
  if (!isRoot) return context.skip(TAKES_ROOT);
  const { halley, cursor, data, remove } = await withoutWrites();
  const place = placeIn(halley.runtime, data);
  const bases = ['/run', '/tmp'];
  const theirs = join(halley.folder, 'theirs');
  const made = [
    () => { mkdirSync(place, { mode: 0o700 }); chownSync(place, NOBODY, NOBODY); },
    () => { mkdirSync(place, { mode: 0o700 }); chmodSync(place, 0o777); },
    () => { mkdirSync(theirs, { mode: 0o700 }); symlinkSync(theirs, place); },
  ];
  try {
    for (const make of made) {
      make();
      await starts(halley);
      const places = bases.map((base) => join(placeIn(base, data), 'trunk.sock'));
      assert.equal(places.filter(existsSync).length, 1);
      await serves(halley, cursor);
      await halley.terminate();
      rmSync(place, { recursive: true, force: true });
    }
  } finally {
    remove();
  }
});
