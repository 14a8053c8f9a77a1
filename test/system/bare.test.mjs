// docs/guides/running.md, "What it needs around it": Halley starts, serves and stops, and its
// commands work, in an environment that has next to nothing: no HOME, no locale, a user without a
// name, nothing to write to but data.dir, nothing to read from or to write to at all.

import assert from 'node:assert/strict';
import {
  chmodSync, chownSync, existsSync, mkdirSync, readdirSync, statSync, writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { after } from 'node:test';
import { fileURLToPath } from 'node:url';
import { publish } from '../lib/client.mjs';
import { prepare, test } from '../lib/halley.mjs';
import { closeStreams, sse } from '../lib/streams.mjs';
import { until } from '../lib/wait.mjs';

const isRoot = process.getuid() === 0;
const TAKES_ROOT = 'another user, or mounts of its own, take root';
/** Nobody has it. */
const UID = 54_321;
const LETTERS = 'dåta ежа 日本';
const PATH = process.env.PATH;

after(closeStreams);

const shell = (script) => ['bash', '-c', `${script}; exec "$@"`, '_'];
const CHECKOUT = fileURLToPath(new URL('../..', import.meta.url));
/** `mount` in a name space of its own; the root then takes no writes, but the folder does. */
const mounts = (...steps) => (halley) => {
  const folder = halley.folder;
  halley.within = ['unshare', '--mount', ...shell(['set -e', ...steps.map((step) =>
    step.replaceAll('FOLDER', folder).replaceAll('CHECKOUT', CHECKOUT))].join('; '))];
};
const asUser = (uid) => (halley) => {
  chownSync(halley.folder, uid, uid);
  halley.within = ['setpriv', `--reuid=${uid}`, `--regid=${uid}`, '--clear-groups'];
};
const home = (mode) => (halley) => {
  const dir = join(halley.folder, 'home');
  mkdirSync(dir);
  chmodSync(dir, mode);
  halley.environment = { PATH, HOME: dir };
};

/** `set` makes it so; `letters`: in names; `isMute`: what commands print can't be seen. */
const cases = [
  { name: 'nothing in the environment', set: (halley) => { halley.environment = {}; } },
  { name: 'a HOME that is not there',
    set: (halley) => { halley.environment = { PATH, HOME: '/nonexistent' }; } },
  { name: 'an empty HOME', set: (halley) => { halley.environment = { PATH, HOME: '' }; } },
  { name: 'a HOME that is empty, and stays so', set: home(0o755) },
  { name: 'a HOME that takes no writes, of a user without a name', takesRoot: true,
    set: (halley) => { home(0o555)(halley); asUser(UID)(halley); } },
  { name: 'the user nobody', takesRoot: true,
    set: (halley) => { halley.environment = { PATH }; asUser(65_534)(halley); } },
  ...['C', 'POSIX', 'de_DE.ISO-8859-1', 'nowhere.UTF-8'].map((locale) => ({
    name: `letters beyond ASCII in data.dir and halley.conf, LC_ALL=${locale}`, letters: true,
    set: (halley) => {
      halley.environment = { PATH, HOME: '/', LC_ALL: locale, LANG: locale };
    } })),
  { name: 'letters beyond ASCII, no locale', letters: true,
    set: (halley) => { halley.environment = {}; } },
  { name: 'bytes in the environment that are no text',
    set: (halley) => { halley.within = shell('export ODD=$\'\\xe9\\xff\''); } },
  { name: 'a root that takes no writes', takesRoot: true,
    set: mounts('mount --bind FOLDER FOLDER', 'mount -o remount,bind,ro /',
      '! : 2> /dev/null > /x') },
  { name: 'nothing in /tmp, which takes no writes', takesRoot: true,
    // The checkout may be in /tmp itself.
    set: mounts('mount --bind FOLDER /mnt', 'mount --bind CHECKOUT /media',
      'mount -t tmpfs none /tmp', 'mkdir FOLDER', 'mkdir -p CHECKOUT',
      'mount --bind /mnt FOLDER', 'mount --bind /media CHECKOUT',
      'umount /mnt', 'umount /media', 'mount -o remount,ro /tmp',
      '! : 2> /dev/null > /tmp/x') },
  { name: 'stdin closed', set: (halley) => { halley.within = shell('exec <&-'); } },
  { name: 'stdout closed', isMute: true, set: (halley) => { halley.within = shell('exec >&-'); } },
  { name: 'stderr closed', isMute: true, set: (halley) => { halley.within = shell('exec 2>&-'); } },
  { name: 'all three closed', isMute: true,
    set: (halley) => { halley.within = shell('exec <&- >&- 2>&-'); } },
  { name: 'stdout and stderr are full', isMute: true,
    set: (halley) => { halley.within = shell('exec > /dev/full 2>&1'); } },
  { name: 'whoever read stdout and stderr is gone', isMute: true,
    set: (halley) => { halley.within = shell('exec > >(exec true) 2>&1; sleep 0.2'); } },
  { name: 'umask 000', set: (halley) => { halley.within = shell('umask 000'); } },
  { name: 'umask 077', set: (halley) => { halley.within = shell('umask 077'); } },
  { name: 'umask 777', set: (halley) => { halley.within = shell('umask 777'); } },
];

/** All in a folder, with its own name. */
function below(folder) {
  return [folder, ...readdirSync(folder, { withFileTypes: true }).flatMap((entry) =>
    (entry.isDirectory() ? below(join(folder, entry.name)) : [join(folder, entry.name)]))];
}

async function hears(halley, user, n) {
  const stream = await sse(halley, user);
  await publish(halley, user, n);
  assert.equal((await stream.event()).data, n);
  stream.close();
}

/** A command does what it is for, and says so where that can be seen. */
async function does(halley, isMute, words, said, code = 0) {
  const answer = await halley.command(...words);
  if (isMute) return;
  assert.equal(answer.code, code, `${words}: ${answer.stdout}${answer.stderr}`);
  assert.match(answer.stdout + answer.stderr, said, `${words}`);
}

/** In groups, as what one makes the next one shows. */
const commands = [
  async (halley, isMute) => {
    await does(halley, isMute, ['version'], /^halley \d/);
    await does(halley, isMute, ['config'], /data\.dir = /);
    await does(halley, isMute, ['try'], /curl/);
  },
  async (halley, isMute) => {
    await does(halley, isMute, ['key', 'create', 'web', '--scope', 'publish'], /hk_|web/);
    await does(halley, isMute, ['key', 'list'], /web/);
    await does(halley, isMute, ['key', 'revoke', 'web'], /web/);
    await does(halley, isMute, ['key', 'open'], /./);
  },
  async (halley, isMute) => {
    const backup = join(halley.folder, 'backup');
    await does(halley, isMute, ['backup', backup], /ids and/);
    assert.ok(existsSync(join(backup, 'follows')));
  },
  async (halley, isMute) => {
    await does(halley, isMute, ['postgres', 'check'], /postgres\.url/, 1);
    await does(halley, isMute, ['hooks', 'check'], /hooks\.url/, 1);
  },
];

/**
 * Each command starts an Erlang of its own, so an environment gets one group, and its neighbours
 * the others. COMMANDS=all: every command in every environment.
 */
const commandsOf = (place) => (process.env.COMMANDS === 'all' ? commands
  : [commands[place % commands.length]]);

for (const [place, { name, set, letters, takesRoot, isMute = false }] of cases.entries()) {
  test(name, async (context) => {
    if (takesRoot && !isRoot) return context.skip(TAKES_ROOT);
    const halley = await prepare();
    if (letters) {
      halley.settings.HALLEY_DATA_DIR = null;
      halley.conf = `## ${LETTERS}\ndata.dir = ${join(halley.folder, LETTERS)}\n`;
      writeFileSync(join(halley.folder, 'halley.conf'), halley.conf);
    }
    const data = join(halley.folder, letters ? LETTERS : 'data');
    set(halley);
    try {
      await halley.start();
      await hears(halley, 'ann', 1);
      for (const run of commandsOf(place)) await run(halley, isMute);
      // The next brain takes over the edge, and so has found its sockets.
      const edge = halley.edgePid();
      await halley.killBrain();
      await halley.start();
      assert.equal(halley.edgePid(), edge);
      await hears(halley, 'ann', 2);
      await does(halley, isMute, ['drain'], /drained/);
      assert.equal((await halley.exited()).code, 0);
      await until('the edge has gone', () => halley.edgePids().length === 0);
      await does(halley, isMute, ['repair', '--dry-run'], /./);
      for (const path of below(data)) {
        assert.equal(statSync(path).mode & 0o077, 0, `${path} is its owner's alone`);
      }
      const known = ['backup', 'data', 'halley.conf', 'home', LETTERS];
      assert.deepEqual(readdirSync(halley.folder).filter((entry) => !known.includes(entry)), []);
      const { HOME } = halley.environment;
      if (HOME?.startsWith(halley.folder)) assert.deepEqual(readdirSync(HOME), []);
    } finally {
      halley.killAll();
    }
  });
}

test('a data.dir whose name is no text is refused in one line', async () => {
  const halley = await prepare();
  halley.within = shell('export HALLEY_DATA_DIR=$\'/tmp/\\xe9\'');
  halley.spawn();
  assert.equal((await halley.exited()).code, 1);
  assert.match(halley.stderr, /^halley: HALLEY_DATA_DIR: is not UTF-8 text\n$/);
  halley.remove();
});
