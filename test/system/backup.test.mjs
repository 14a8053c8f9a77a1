// docs/guides/backup.md: a copy made while Halley runs starts as a Halley of its own. It has every
// follow that was acknowledged before the backup began, none without a request, and clients that
// come to it with a cursor get the missed events, or a gap.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, renameSync, rmSync, statSync, writeFileSync }
  from 'node:fs';
import { join } from 'node:path';
import { after } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { api, follow, publish, unfollow } from '../lib/client.mjs';
import { prepare, start, test } from '../lib/halley.mjs';
import { closeStreams, poll } from '../lib/streams.mjs';
import { until } from '../lib/wait.mjs';

after(closeStreams);

const LAUNCHER = process.env.LAUNCHER ?? fileURLToPath(new URL('../../halley', import.meta.url));
const run = promisify(execFile);

/** Lines of the log that somebody has to look at. */
const LOUD = / (warning|error|critical|alert|emergency) /;

/** `./halley <command>`; gives `{code, stdout, stderr}`. */
async function command(halley, ...args) {
  const options = { cwd: halley.folder, env: { ...process.env, ...halley.settings },
    timeout: 120_000 };
  try {
    return { code: 0, ...await run(LAUNCHER, args, options) };
  } catch (error) {
    return { code: error.code, stdout: error.stdout, stderr: error.stderr };
  }
}

/** Whom each of these users follows, as `user subject`. */
async function graph(halley, users) {
  const pairs = new Set();
  for (const user of users) {
    const answer = await api(halley, 'GET', `/v1/users/${user}/following?limit=1000`);
    assert.equal(answer.status, 200, answer.body);
    for (const subject of answer.json.following) pairs.add(`${user} ${subject}`);
    assert.equal(answer.json.next, null);
  }
  return pairs;
}

const users = Array.from({ length: 40 }, (_, n) => `u${n}`);

/** Follows and unfollows until told to stop; gives what is acknowledged, and all that was asked. */
function busy(halley) {
  const writer = { following: new Set(), asked: new Set(), ever_removed: new Set(), on: true };
  let n = 0;
  writer.done = (async () => {
    while (writer.on) {
      n += 1;
      const pairs = users.map((user) => [user, `s${n % 400}-${n}`]);
      for (const [user, subject] of pairs) writer.asked.add(`${user} ${subject}`);
      await follow(halley, ...pairs);
      for (const [user, subject] of pairs) writer.following.add(`${user} ${subject}`);
      if (n % 5 === 0) {
        const gone = [users[n % users.length], `s${n % 400}-${n}`];
        writer.ever_removed.add(gone.join(' '));
        await unfollow(halley, gone);
        writer.following.delete(gone.join(' '));
      }
      await publish(halley, 'ann', n);
      writer.published = n;
    }
  })();
  writer.stop = async () => {
    writer.on = false;
    await writer.done;
  };
  return writer;
}

/** A Halley on the copy; the first one may run beside it. */
async function startCopy(dir, settings = {}) {
  return (await prepare({ settings: { HALLEY_DATA_DIR: dir, ...settings } })).start();
}

function assertPrivate(dir) {
  assert.equal(statSync(dir).mode & 0o777, 0o700, dir);
  for (const entry of readdirSync(dir, { withFileTypes: true })) {
    const path = join(dir, entry.name);
    if (entry.isDirectory()) assertPrivate(path);
    else assert.equal(statSync(path).mode & 0o777, 0o600, path);
  }
}

async function assertCopied(writer, acknowledged, copy) {
  const copied = await graph(copy, users);
  const missing = [...acknowledged]
    .filter((pair) => !copied.has(pair) && !writer.ever_removed.has(pair));
  assert.deepEqual(missing, [], 'acknowledged before the backup began');
  assert.deepEqual([...copied].filter((pair) => !writer.asked.has(pair)), [], 'never asked for');
  const back = [...copied].filter((pair) => !acknowledged.has(pair)
    && writer.removed_before.has(pair));
  assert.deepEqual(back, [], 'unfollowed before the backup began');
}

/** The newest events about ann, as a page of the past. */
async function page(halley) {
  const answer = await api(halley, 'GET', '/v1/subjects/ann/events?limit=1000');
  assert.equal(answer.status, 200, answer.body);
  return answer.json;
}

/** backup.md, "Start from a backup": no warning and no error in the log, no gap in a page. */
async function assertQuiet(halley) {
  const loud = halley.log.split('\n').filter((line) => LOUD.test(line));
  assert.deepEqual(loud, []);
  assert.deepEqual((await page(halley)).gaps, []);
  const history = (await api(halley, 'GET', '/v1/history')).json;
  assert.deepEqual([history.damaged, history.damaged_total], [[], 0]);
}

test('a backup while users follow and events are published; a Halley starts on it', async () => {
  const halley = await start();
  const dir = join(halley.folder, 'copy');
  await follow(halley, ['kim', 'ann']);
  const cursor = (await poll(halley, 'kim', { timeout: 0 })).cursor;
  const writer = busy(halley);
  await until('much has been written', () => writer.published >= 50);
  const acknowledged = new Set(writer.following);
  writer.removed_before = new Set([...writer.ever_removed].filter((p) => !acknowledged.has(p)));
  const first = writer.published;
  const made = await command(halley, 'backup', dir);
  const later = (await poll(halley, 'kim', { timeout: 0 })).cursor;
  await publish(halley, 'ann', 'only there');
  assert.equal(made.code, 0, made.stderr);
  assert.match(made.stdout, /\d+ ids and \d+ follows, [1-9]\d* history segments, [\d.]+ MB\n$/);
  await writer.stop();

  assertPrivate(dir);
  assert.deepEqual(readdirSync(dir).sort(), ['follows', 'history']);
  const copy = await startCopy(dir);
  await assertCopied(writer, acknowledged, copy);
  await assertQuiet(copy);

  // Everything of before the backup is there; what came during it may be. A copy can't know what
  // came after it, so whoever comes back is told a gap first.
  const seen = [];
  for (let at = cursor; seen.length < first;) {
    const { cursor: next, events, gap } = await poll(copy, 'kim', { cursor: at, timeout: 0 });
    // A poll that goes on from below the gap's end is told it again: nothing is kept between polls.
    if (seen.length === 0) assert.equal(gap?.reason, 'damaged', JSON.stringify(gap));
    if (events.length === 0) break;
    seen.push(...events.map((event) => event.data));
    at = next;
  }
  assert.deepEqual(seen.slice(0, first), Array.from({ length: first }, (_, n) => n + 1));

  // The copy doesn't know what came after it, and says so.
  const { gap, events } = await poll(copy, 'kim', { cursor: later, timeout: 0 });
  assert.ok(gap, `a cursor from after the backup: ${JSON.stringify(events)}`);
  // So it is behind the next start, and in a backup of the copy.
  await publish(copy, 'ann', 'here');
  await copy.terminate();
  await copy.start();
  await assertQuiet(copy);
  const second = join(halley.folder, 'second');
  assert.equal((await command(copy, 'backup', second)).code, 0);
  const last = await startCopy(second);
  await assertQuiet(last);
  assert.equal((await page(last)).events[0].data, 'here');
  await last.stop();

  // A folder without its `store' that is no backup is damaged, and that is said.
  await copy.terminate();
  for (const name of ['store', 'synced']) rmSync(join(dir, 'history', name));
  await copy.start();
  assert.match(copy.log, /history\/store is missing or damaged/);
  assert.match(copy.log, /may be lost/);
  assert.deepEqual((await page(copy)).gaps.map(({ reason }) => reason), ['damaged']);
  await copy.stop();
  await halley.stop();
});

test('data.dir of a Halley that is stopped is moved to another place', async () => {
  const halley = await start();
  await follow(halley, ['kim', 'ann']);
  const { cursor } = await poll(halley, 'kim', { timeout: 0 });
  await publish(halley, 'ann', 1);
  await halley.terminate();
  const moved = join(halley.folder, 'moved');
  renameSync(halley.settings.HALLEY_DATA_DIR, moved);
  const there = await startCopy(moved);
  await assertQuiet(there);
  const { events, gap } = await poll(there, 'kim', { cursor, timeout: 0 });
  assert.deepEqual([events.map(({ data }) => data), gap], [[1], undefined]);
  await there.stop();
  await halley.stop();
});

test('a backup of a Halley that is stopped; of nothing; to a folder with files', async () => {
  const halley = await prepare();
  const dir = join(halley.folder, 'copy');
  const nothing = await command(halley, 'backup', dir);
  assert.equal(nothing.code, 1);
  assert.match(nothing.stderr, /^halley: data\.dir: there is no .*\n$/);
  await halley.start();
  await follow(halley, ['kim', 'ann']);
  await halley.terminate();
  assert.equal((await command(halley, 'backup', dir)).code, 0);
  const again = await command(halley, 'backup', dir);
  assert.equal(again.code, 1);
  assert.match(again.stderr, /is not empty/);
  const copy = await startCopy(dir);
  assert.deepEqual((await api(copy, 'GET', '/v1/users/kim/following')).json.following, ['ann']);
  await copy.stop();
  await halley.stop();
});

test('repair: refused while a brain runs; a damaged store is named and repaired', async () => {
  const halley = await start();
  const running = await command(halley, 'repair');
  assert.equal(running.code, 1);
  assert.match(running.stderr, /^halley: data\.dir: another running brain has .* open\n$/);
  await follow(halley, ['kim', 'ann'], ['lea', 'ann']);
  await follow(halley, ['kim', 'bob']);
  await halley.terminate();
  const whole = await command(halley, 'repair');
  assert.equal(whole.code, 0, whole.stderr);
  assert.equal(whole.stdout, 'The store is whole: 4 ids and 3 follows.\n');

  const data = halley.settings.HALLEY_DATA_DIR;
  const [journal] = readdirSync(join(data, 'follows')).filter((name) => name.startsWith('jour'));
  const path = join(data, 'follows', journal);
  assert.equal((await run('python3', ['-c',
    `f = open(${JSON.stringify(path)}, 'r+b'); f.seek(60); f.write(b'\\x55\\x55')`])).stderr, '');
  const broken = await command(halley, 'backup', join(halley.folder, 'copy'));
  assert.equal(broken.code, 1);
  assert.match(broken.stderr, /damaged at byte \d+; `\.\/halley repair`/);
  assert.ok(!existsSync(join(halley.folder, 'copy')), 'what fails leaves no copy');
  const looked = await command(halley, 'repair', '--dry-run');
  assert.equal(looked.code, 0, looked.stderr);
  for (const line of ['A start is refused: ', 'Damaged: ', 'Can be saved: ', 'Lost: 1 groups',
    'Nothing was changed']) assert.match(looked.stdout, new RegExp(`^${line}`, 'm'));
  const repaired = await command(halley, 'repair');
  assert.equal(repaired.code, 0, repaired.stderr);
  assert.match(repaired.stdout, /follows-damaged-\d{8}T\d{6}Z; remove them/);
  await halley.start();
  // Kim's later follow is there, but the group that named her is lost.
  assert.deepEqual((await api(halley, 'GET', '/v1/users/kim/following')).json.following, []);
  mkdirSync(join(halley.folder, 'mine'));
  writeFileSync(join(halley.folder, 'mine', 'file'), '');
  assert.equal((await command(halley, 'backup', join(halley.folder, 'mine'))).code, 1);
  assert.ok(existsSync(join(halley.folder, 'mine', 'file')), 'nothing of others is removed');
  await halley.stop();
});
