// Issue "What is acknowledged stays" 2, 4b: a disk that refuses at the start, a data directory that
// is moved away under a running brain, descriptors that run out, and who may read the files.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readdirSync, renameSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { after } from 'node:test';
import { api, publish } from '../lib/client.mjs';
import { assertError } from '../lib/expect.mjs';
import { prepare, start, test } from '../lib/halley.mjs';
import { metric } from '../lib/metrics.mjs';
import { onSmallDisk } from '../lib/small-disk.mjs';
import { closeStreams, poll, sse } from '../lib/streams.mjs';
import { sleep, until } from '../lib/wait.mjs';

after(closeStreams);

const now = async (user, on) => (await poll(on, user, { timeout: 0 })).cursor;
const since = async (user, cursor, on) =>
  (await poll(on, user, { cursor, timeout: 20 })).events.map(({ data }) => data);
const ready = async (on) => (await api(on, 'GET', '/readyz')).status;

test('nobody else on the machine may read data.dir', async () => {
  const umask = process.umask(0o022);
  const halley = await prepare();
  try {
    await halley.start();
    await publish(halley, 'ann', 1);
    const folder = halley.settings.HALLEY_DATA_DIR;
    const all = [folder, ...readdirSync(folder, { recursive: true })
      .map((name) => join(folder, name))];
    for (const path of all) {
      assert.equal(statSync(path).mode & 0o077, 0, `${path}: ${statSync(path).mode.toString(8)}`);
    }
    await halley.stop();
  } finally {
    process.umask(umask);
    halley.killAll();
  }
});

test('data.dir is moved away: refused by name, and goes on when it is back', async () => {
  const halley = await start();
  const folder = halley.settings.HALLEY_DATA_DIR;
  const cursor = await now('ann', halley);
  await publish(halley, 'ann', 'before');
  renameSync(folder, `${folder}.moved`);
  const refused = await api(halley, 'POST', '/v1/events', { subject: 'ann', data: 'lost' });
  assertError(refused, 503);
  assert.equal(refused.json.error.code, 'data_dir_moved');
  assert.match(refused.json.error.message, /put it back, or start the server again/);
  assert.match(refused.headers['retry-after'], /^\d+$/);
  assert.equal(await ready(halley), 503);
  assert.equal((await api(halley, 'GET', '/healthz')).status, 200);
  assert.ok(await metric(halley, 'halley_history_moved_total') > 0);
  await sleep(1_500);
  renameSync(`${folder}.moved`, folder);
  await until('it is ready again', async () => await ready(halley) === 200);
  await publish(halley, 'ann', 'behind');
  const heard = await since('ann', cursor, halley);
  assert.deepEqual(heard.filter((data) => data !== 'lost'), ['before', 'behind']);
  await halley.stop();
});

test('a start on a full disk serves what is there, and writes when it can', (context) =>
  onSmallDisk(context, async (full, disk) => {
    await full.start();
    const cursor = await now('ann', full);
    await publish(full, 'ann', 1);
    await full.terminate();
    disk.fill();
    full.spawn();
    await until('it answers', async () =>
      (await api(full, 'GET', '/healthz').catch(() => ({}))).status === 200);
    await until('there is a link', async () => (await since('ann', cursor, full)).length === 1);
    const refused = await api(full, 'POST', '/v1/events', { subject: 'ann', data: 2 });
    assertError(refused, 503);
    assert.equal(refused.json.error.code, 'disk_full');
    disk.free();
    await until('it takes events again', async () =>
      (await api(full, 'POST', '/v1/events', { subject: 'ann', data: 3 })).status === 200);
    assert.deepEqual((await since('ann', cursor, full)).slice(0, 2), [1, 3]);
    await full.terminate();
  }));

const limiter = (pid) => (descriptors) =>
  execFileSync('prlimit', [`--pid=${pid}`, `--nofile=${descriptors}:`]);

test('no descriptor is left: a replay waits for one, and goes on', async () => {
  const halley = await start();
  const first = await sse(halley, 'ann');
  const cursor = await first.place();
  first.close();
  for (const data of [1, 2, 3]) await publish(halley, 'ann', data);
  const pid = halley.brainPid();
  const limit = limiter(pid);
  // Nobody came back yet, so nothing of a replay has been called. A limit below a descriptor that
  // is open ends nothing, but there are no more.
  limit(3);
  const stream = await sse(halley, 'ann', {}, cursor);
  await until('the replay waits', async () =>
    await metric(halley, 'halley_history_descriptor_waits_total') > 0);
  assert.equal((await api(halley, 'GET', '/healthz')).status, 200);
  limit(4_096);
  for (const data of [1, 2, 3]) assert.equal((await stream.event('what was missed')).data, data);
  stream.close();
  assert.deepEqual(await since('ann', cursor, halley), [1, 2, 3]);
  await publish(halley, 'ann', 4);
  assert.equal(halley.brainPid(), pid);
  assert.ok(!/undef/.test(halley.log), halley.logTail);
  await halley.stop();
});

test('no descriptor is left: an edge that was adopted isn\'t taken for dead', async () => {
  const halley = await start();
  const stream = await sse(halley, 'ann');
  const edge = halley.edgePid();
  await halley.killBrain();
  await halley.start();
  // The edge answers before the brain's last applications have loaded their modules.
  await sleep(3_000);
  const limit = limiter(halley.brainPid());
  limit(3);
  // The brain looks at it twice a second.
  await sleep(1_600);
  limit(4_096);
  await publish(halley, 'ann', 1);
  assert.equal((await stream.event('on the connection of before')).data, 1);
  assert.deepEqual(halley.edgePids(), [edge]);
  assert.doesNotMatch(halley.log, /the edge ended/);
  stream.close();
  await halley.stop();
});
