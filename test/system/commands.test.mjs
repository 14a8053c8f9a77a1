// The command line with a new user's eyes: each command of `./halley help` right and wrong, before
// Halley runs, while it runs, with a damaged configuration and as another user. The result goes to
// stdout; what is wrong, and what to do, goes to stderr in one line, with exit status 1.

import assert from 'node:assert/strict';
import { chmodSync, existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { prepare, start, test } from '../lib/halley.mjs';

/** Runs it, and insists on its status, all of stdout, and stderr's lines. */
async function expect(halley, words, { code = 0, out = /^$/, err = [] }) {
  const told = await halley.command(...words);
  const shown = `./halley ${words.join(' ')}: ${JSON.stringify(told).slice(0, 1000)}`;
  assert.equal(told.code, code, shown);
  assert.ok(out.test(told.stdout), `stdout ${out}: ${shown}`);
  const lines = told.stderr.split('\n').slice(0, -1);
  assert.equal(lines.length, err.length, shown);
  for (const [n, line] of lines.entries()) assert.match(line, err[n], shown);
}

const refused = (...err) => ({ code: 1, err });
const HELP = /^usage: \.\/halley <command>\n[^]*\nThe exit status is 0 if all was done, else 1; /;
const KEY = /^hk_[0-9a-f]+_[0-9a-f]+\n$/;
const KEY_USAGE = /^halley: .*usage: \.\/halley key create <name> --scope .* \| key list \| /;

test('each command, right and wrong, where there is nothing yet', async () => {
  const halley = await prepare();
  try {
    for (const [line, expected] of [
      ['', { out: HELP }], ['help', { out: HELP }], ['--help', { out: HELP }],
      ['key --help', { out: HELP }], ['key create web -h', { out: HELP }],
      ['postgres setup --help', { out: HELP }], ['backup --help', { out: HELP }],
      ['version', { out: /^halley \d+\.\d+\.\d+\n$/ }],
      ['--version', { out: /^halley \d+\.\d+\.\d+\n$/ }],
      ['--version x', refused(/^halley: --version takes no arguments; /)],
      ['config x', refused(/^halley: config takes no arguments; `\.\/halley help` says more$/)],
      ['config', { out: /^# As halley\.conf would say it.*\n# There is no halley\.conf in \// }],
      // A command that isn't one has no help.
      ['frob --help', refused(/^halley: there is no command frob; `\.\/halley help` lists them$/)],
      ['ping', refused(/^halley: there is no command ping; `\.\/halley status` says how /)],
      ['try', { out: /^\n  When Halley is ready \(`\.\/halley foreground` runs it\):\n/ }],
      ['drain', refused(/^halley: nothing to drain: no Halley runs with data\.dir = \//)],

      ['key', refused(/^halley: usage: \.\/halley key create <name> /)],
      ['key frob', refused(KEY_USAGE)], ['key list x', refused(KEY_USAGE)],
      ['key create', refused(/^halley: `\.\/halley key create` isn't a command; usage: /)],
      ['key create a b --scope read', refused(KEY_USAGE)],
      ['key create web --scop read', refused(KEY_USAGE)], ['key revoke', refused(KEY_USAGE)],
      ['key create web', refused(/^halley: a key needs scopes: `.*key create web --scope` and/)],
      ['key create web --scope', refused(/^halley: a key needs scopes: /)],
      ['key create web --scope=root', refused(/root/)],
      ['key revoke web', refused(/^halley: there is no key web; `\.\/halley key list` shows/)],

      ['backup', refused(/^halley: usage: \.\/halley backup DIR$/)],
      ['backup --verbose', refused(/^halley: `.* backup --verbose` isn't a command; usage: /)],
      ['backup a b', refused(/^halley: `.* backup a b` isn't a command; usage: /)],
      ['repair --dryrun', refused(/^halley: `.* repair --dryrun` isn't a command; usage: /)],
      ['repair now', refused(/usage: \.\/halley repair \[--dry-run\]$/)],
      ['repair --dry-run', { out: /^There are no ids or follows yet: nothing to repair\.\n$/ }],

      ['postgres', refused(/^halley: usage: \.\/halley postgres check \| postgres setup \[/)],
      ['postgres chekc', refused(/^halley: `.* postgres chekc` isn't a command; usage: /)],
      ['postgres setup --force', refused(/isn't a command; usage: /)],
      ['postgres check', refused(/^halley: there is no PostgreSQL .*: set postgres\.url, and /)],
      ['hooks', refused(/^halley: usage: \.\/halley hooks check$/)],
      ['hooks test', refused(/^halley: `.* hooks test` isn't a command; usage: /)],
      ['hooks check', refused(/^halley: there are no hooks .*: set hooks\.url, hooks\.events and/)],
    ]) await expect(halley, line.split(' ').filter(Boolean), expected);
    assert.ok(!existsSync(join(halley.folder, '--verbose')), 'no folder is named like an option');
    // The key alone is on stdout.
    for (const line of ['one --scope read', 'two --scope=read,publish', '--scope read three']) {
      await expect(halley, ['key', 'create', ...line.split(' ')], {
        out: KEY, err: [/^This is the only time that the key is shown\. .* data\.dir = \//] });
    }
    await expect(halley, ['key', 'list'], { out: /^NAME .*\none .*\ntwo .*\nthree .*\n$/ });
    const within = join(halley.settings.HALLEY_DATA_DIR, 'copy');
    await expect(halley, ['backup', within], refused(/copy is in data\.dir, which it would copy/));
  } finally {
    halley.killAll();
  }
});

test('a damaged halley.conf: the mistake is named, and keys and a stop need no other', async () => {
  const halley = await start();
  const wrong = /^halley: halley\.conf: there is no key api\.lisen; did you mean api\.listen\?$/;
  try {
    writeFileSync(join(halley.folder, 'halley.conf'), 'api.lisen = 127.0.0.1:1\n');
    const folder = join(halley.folder, 'copy');
    for (const words of [['config'], ['try'], ['repair'], ['backup', folder], ['hooks', 'check'],
      ['postgres', 'check']]) await expect(halley, words, refused(wrong));
    // Its own mistake first: the configuration has nothing to do with it.
    await expect(halley, ['backup'], refused(/^halley: usage: /));
    await expect(halley, ['postgres', 'chekc'], refused(/usage: /));
    await expect(halley, ['key', 'frob'], refused(KEY_USAGE));
    await expect(halley, ['version'], { out: /^halley / });
    await expect(halley, ['key', 'create', 'web', '--scope', 'read'], { out: KEY, err: [
      wrong, /^halley: the keys are those of data\.dir = .* all the same$/, /^This is the only/] });
    await expect(halley, ['drain'], { out: /^[^]*drained: the brain, pid \d+, and its edge are/,
      err: [wrong, /^halley: it is the Halley of data\.dir = .* all the same$/] });
    assert.deepEqual(await halley.exited(), { code: 0, signal: null });
    assert.ok(!existsSync(folder));
  } finally {
    halley.killAll();
  }
});

test('halley.conf that is no file, or is named and not there', async () => {
  const halley = await prepare();
  try {
    mkdirSync(join(halley.folder, 'folder'));
    for (const [file, what] of [['folder', /folder: cannot be read: illegal operation on a dir/],
      ['/nowhere', /^halley: \/nowhere: cannot be read: no such file or directory$/]]) {
      halley.settings.HALLEY_CONF = file;
      await expect(halley, ['config'], refused(what));
    }
  } finally {
    halley.killAll();
  }
});

test('while Halley runs: what may, and what must wait for its end', async () => {
  const halley = await start();
  try {
    await expect(halley, ['repair'], refused(/^halley: .*data\.dir/));
    await expect(halley, ['foreground'], refused(/^halley: .*data\.dir/));
    await expect(halley, ['config'], { out: /\nnode\.name = / });
    const folder = join(halley.folder, 'copy');
    await expect(halley, ['backup', folder], { out: /copy: 0 ids and 0 follows, / });
    await expect(halley, ['backup', folder], refused(/copy is not empty; a backup takes an empty/));
    await expect(halley, ['key', 'create', 'web', '--scope', 'read'], {
      out: KEY, err: [/^This is the only time/] });
    await expect(halley, ['drain'], { out: /drained: the brain, pid \d+, and its edge are gone/ });
    await expect(halley, ['drain'], refused(/^halley: nothing to drain: /));
  } finally {
    halley.killAll();
  }
});

test('as another user: whose it is, and who may', async (context) => {
  if (process.getuid() !== 0) return context.skip('only root can be another user');
  const halley = await start();
  const NOBODY = ['setpriv', '--reuid', '65534', '--regid', '65534', '--clear-groups'];
  const mine = halley.within;
  try {
    chmodSync(halley.folder, 0o755);
    halley.within = NOBODY;
    await expect(halley, ['drain'], refused(
      /^halley: cannot look into data\.dir = .*; run this as its user, root$/));
    for (const words of [['key', 'list'], ['key', 'create', 'web', '--scope', 'read'],
      ['repair'], ['backup', '/tmp/halley-nowhere']]) {
      const { code, stdout, stderr } = await halley.command(...words);
      assert.deepEqual([code, stdout], [1, ''], words.join(' '));
      assert.match(stderr, /^halley: .*(permission denied|belongs to).*\n$/, words.join(' '));
    }
    // A folder that others may look into: they may not signal what runs there.
    chmodSync(halley.settings.HALLEY_DATA_DIR, 0o755);
    await expect(halley, ['drain'], refused(/^halley: cannot look into data\.dir = /));
    chmodSync(join(halley.settings.HALLEY_DATA_DIR, 'halley.pid'), 0o644);
    await expect(halley, ['drain'], refused(
      /^halley: cannot signal the brain, pid \d+; run this as its user, root, or as root$/));
  } finally {
    halley.within = mine;
    await halley.stop();
  }
});
