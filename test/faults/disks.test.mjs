// The checker's own disks: a power cut keeps what was synced and nothing that wasn't, unless it is
// asked to; a disk can fail, and stand still; a file system can go read-only under open files.

import assert from 'node:assert/strict';
import { execFile, execFileSync } from 'node:child_process';
import {
  closeSync, existsSync, fsyncSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync,
  writeSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'node:test';
import { promisify } from 'node:util';
import { sleep } from '../lib/wait.mjs';
import { makeDisk } from './lib/disks.mjs';
import { missing } from './lib/server.mjs';

const run = promisify(execFile);
const BYTES = 16 * 1024 * 1024;

/** A test with a disk of that kind, where there can be one. */
function onDisk(name, profile, body) {
  test(name, { skip: missing({ disk: profile }) ?? false }, async () => {
    const folder = mkdtempSync(join(tmpdir(), 'halley-disk-'));
    const disk = await makeDisk(folder, { bytes: BYTES, ...profile });
    try {
      await body(disk, (file) => join(disk.mountPoint, file));
    } finally {
      disk.remove();
      rmSync(folder, { recursive: true });
    }
  });
}

function writeSynced(path, text) {
  const descriptor = openSync(path, 'w');
  writeSync(descriptor, text);
  fsyncSync(descriptor);
  closeSync(descriptor);
}

const LAZY = { kind: 'power', commitS: 60 };

onDisk('an fsync reaches the disk as a flush', LAZY, async (disk, at) => {
  const before = await disk.stats();
  writeSynced(at('synced'), 'here');
  const after = await disk.stats();
  assert.ok(after.flushes > before.flushes && after.writes > before.writes);
  assert.equal(after.cached, 0);
});

onDisk('what was synced outlives a power cut, and what was not is gone', LAZY, async (disk, at) => {
  writeSynced(at('synced'), 'here');
  writeFileSync(at('lazy'), 'gone');
  await disk.cut({ style: 'none', percent: 0, seed: 1 });
  writeSynced(at('late'), 'after the cut');
  await disk.restore();
  assert.equal(readFileSync(at('synced'), 'utf8'), 'here');
  assert.ok(!existsSync(at('lazy')) && !existsSync(at('late')));
});

onDisk('a cut keeps as much of the cache as it is asked to', LAZY, async (disk, at) => {
  writeSynced(at('file'), Buffer.alloc(1024 * 1024, 1));
  // Past the page cache, onto blocks that the file has already: written, and not flushed.
  execFileSync('dd', ['if=/dev/zero', `of=${at('file')}`, 'bs=64k', 'count=16', 'oflag=direct',
    'conv=notrunc', 'status=none']);
  const { cached } = await disk.stats();
  assert.ok(cached > 0, 'something is in the cache');
  const all = await disk.cut({ style: 'all', percent: 0, seed: 1 });
  assert.deepEqual(all, { cached, kept: cached });
  const some = await disk.cut({ style: 'sectors', percent: 50, seed: 1 });
  assert.ok(some.kept > 0 && some.kept < some.cached, `${some.kept} of ${some.cached}`);
  const again = await disk.cut({ style: 'sectors', percent: 50, seed: 1 });
  assert.deepEqual(again, some);
});

onDisk('a disk fails: what is synced then is an error', LAZY, async (disk, at) => {
  writeSynced(at('before'), 'here');
  await disk.whileFailing(() => {
    assert.throws(() => writeSynced(at('meanwhile'), 'lost'), /EIO|EROFS/);
    assert.ok(!disk.isWritable());
  });
  assert.equal(readFileSync(at('before'), 'utf8'), 'here');
});

onDisk('a disk stands still: what is synced then waits', LAZY, async (disk, at) => {
  let isSynced = false;
  let syncing;
  await disk.whileStill(async () => {
    syncing = run('dd', ['if=/dev/zero', `of=${at('slow')}`, 'bs=4k', 'count=1', 'conv=fsync']);
    syncing.then(() => { isSynced = true; });
    await sleep(500);
    assert.ok(!isSynced);
  });
  await syncing;
  assert.equal(readFileSync(at('slow')).length, 4096);
  assert.ok(disk.isWritable());
});

onDisk('a file system goes read-only under open files', { kind: 'ext4' }, async (disk, at) => {
  const descriptor = openSync(at('open'), 'w');
  writeSync(descriptor, 'before');
  disk.becomeReadOnly();
  assert.throws(() => writeSync(descriptor, 'later'), /EROFS/);
  assert.equal(readFileSync(at('open'), 'utf8'), 'before');
  closeSync(descriptor);
  await disk.unmount();
  disk.mount();
  writeFileSync(at('new'), 'writable');
});
