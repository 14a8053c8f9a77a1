// Takes the suites from package registries, by the registries' own clients, into a cache outside of
// the tree: apt for Debian (with a state of its own; the machine's packages stay what they are),
// pip for PyPI, go for the Go module proxy. A file that is there already is not taken again; one
// with another SHA-256 than in `packages.mjs` ends the run.

import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { AUTOBAHN, BOOT, CORPORA, DEBIAN, WYCHEPROOF } from './packages.mjs';

const COMMAND_MS_MAX = 600_000;

export const cache = join(process.env.XDG_CACHE_HOME || join(homedir(), '.cache'), 'halley-doors');

const JSON_TEXTS = 'orjson-3.10.7/data/parsing';
/** The largest texts of the corpus are compressed. */
const UNPACK_XZ = `
import glob, lzma, os, sys
for path in glob.glob(os.path.join(sys.argv[1], '*.xz')):
    with lzma.open(path) as packed, open(path[:-3], 'wb') as text:
        text.write(packed.read())
    os.remove(path)
`;

const say = (text) => process.stdout.write(`  ${text}\n`);

/** Runs a program; gives what it printed. Its errors end the run with what it said. */
function command(program, options, env = {}) {
  try {
    return execFileSync(program, options, { env: { ...process.env, ...env },
      timeout: COMMAND_MS_MAX, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });
  } catch (error) {
    const said = `${error.stdout ?? ''}${error.stderr ?? ''}`.split('\n').slice(-15).join('\n');
    throw new Error(`${program} ${options.slice(0, 4).join(' ')} ... failed:\n${said}`);
  }
}

/**
 * A folder of the cache that `fill(folder)` makes once; anew when an earlier run was cut off in it.
 * Other pins or another `fill` have another folder, so that two checkouts don't share one.
 */
function once(name, pins, fill) {
  const recipe = createHash('sha256').update(JSON.stringify([pins, fill.toString()]));
  const folder = join(cache, `${name}-${recipe.digest('hex').slice(0, 12)}`);
  const stamp = join(folder, '.complete');
  if (existsSync(stamp)) return folder;
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  fill(folder);
  writeFileSync(stamp, '');
  return folder;
}

function checkSum(file, sum) {
  const found = createHash('sha256').update(readFileSync(file)).digest('hex');
  if (found !== sum) throw new Error(`${file} has the SHA-256 ${found} instead of ${sum}`);
}

/** Lines for `pip --require-hashes`: pip itself refuses a file with another SHA-256. */
function requirements(folder, packages) {
  const file = join(folder, 'requirements.txt');
  writeFileSync(file, Object.entries(packages)
    .map(([name, sum]) => `${name} --hash=sha256:${sum}\n`).join(''));
  return ['--no-deps', '--require-hashes', '-r', file];
}

/** Where the machine takes its own Debian from, or what `DOORS_DEBIAN` says. */
function mirror() {
  if (process.env.DOORS_DEBIAN) return process.env.DOORS_DEBIAN;
  const targets = command('apt-get', ['indextargets', '--format', '$(COMPONENT) $(REPO_URI)',
    'Created-By: Packages']);
  const main = targets.split('\n').find((line) => line.startsWith('main '));
  if (!main) throw new Error('apt has no source with `main`: name a mirror by DOORS_DEBIAN=URL');
  return main.split(' ')[1];
}

/** Makes a state of apt in `folder`; gives apt's options for it. */
function aptOptions(folder) {
  for (const part of ['lists/partial', 'cache/archives/partial', 'state']) {
    mkdirSync(join(folder, part), { recursive: true });
  }
  const list = join(folder, 'sources.list');
  writeFileSync(list, `deb [signed-by=${DEBIAN.keyring}] ${mirror()} ${DEBIAN.release} main\n`);
  writeFileSync(join(folder, 'status'), '');
  return [`Dir::State=${join(folder, 'state')}`, `Dir::State::Lists=${join(folder, 'lists')}`,
    `Dir::State::Status=${join(folder, 'status')}`, `Dir::Cache=${join(folder, 'cache')}`,
    `Dir::Etc::SourceList=${list}`, 'Dir::Etc::SourceParts=-', 'Acquire::Languages=none',
    'APT::Sandbox::User=', 'APT::Update::Error-Mode=any'].flatMap((option) => ['-o', option]);
}

/** Reads the lists of Debian 11; gives apt's options. */
function aptUpdated(folder) {
  const options = aptOptions(folder);
  try {
    command('apt-get', [...options, 'update']);
  } catch (error) {
    throw new Error(`${error.message}\nDOORS_DEBIAN=URL names a mirror that has Debian 11`);
  }
  return options;
}

function debianFolder() {
  return once('debian', DEBIAN, (folder) => {
    const names = Object.keys(DEBIAN.packages);
    say(`apt: ${names.join(' ')} from Debian 11 (bullseye), unpacked in ${folder}`);
    const options = aptUpdated(folder);
    const debs = join(folder, 'debs');
    mkdirSync(debs);
    execFileSync('apt-get', [...options, 'download', ...names], { cwd: debs, stdio: 'pipe' });
    for (const [name, sum] of Object.entries(DEBIAN.packages)) {
      const start = `${name.split('=')[0]}_`;
      const deb = join(debs, readdirSync(debs).find((file) => file.startsWith(start)));
      checkSum(deb, sum);
      command('dpkg-deb', ['-x', deb, join(folder, 'root')]);
    }
  });
}

function corporaFolder() {
  return once('corpora', CORPORA, (folder) => {
    say(`pip: sources of ${Object.keys(CORPORA).join(' ')} from PyPI, unpacked in ${folder}`);
    command('python3', ['-m', 'pip', 'download', '--quiet', '--no-binary', ':all:',
      '--dest', folder, ...requirements(folder, CORPORA)]);
    for (const name of Object.keys(CORPORA)) {
      const source = `${name.replace('==', '-')}.tar.gz`;
      command('tar', ['-xzf', join(folder, source), '-C', folder, '--no-same-owner']);
    }
    command('python3', ['-c', UNPACK_XZ, join(folder, JSON_TEXTS)]);
  });
}

/** How PyPy is started: its program and environment. */
function pypy(debian) {
  const libraries = ['usr/lib/x86_64-linux-gnu', 'usr/lib'].map((at) => join(debian, 'root', at));
  return { program: join(debian, 'root/usr/lib/pypy/bin/pypy-c'),
    env: { LD_LIBRARY_PATH: libraries.join(':') } };
}

function autobahnFolder(debian) {
  return once('autobahn', [AUTOBAHN, DEBIAN], (folder) => {
    say(`pip: ${Object.keys(AUTOBAHN).join(' ')} from PyPI, installed in ${folder}`);
    const boot = join(folder, 'boot');
    mkdirSync(boot);
    command('python3', ['-m', 'pip', 'download', '--quiet', '--dest', boot, '--only-binary',
      ':all:', '--python-version', '27', '--implementation', 'py', '--abi', 'none',
      '--platform', 'any', ...requirements(boot, BOOT)]);
    for (const wheel of readdirSync(boot).filter((file) => file.endsWith('.whl'))) {
      command('python3', ['-m', 'zipfile', '-e', join(boot, wheel), boot]);
    }
    const { program, env } = pypy(debian);
    command(program, ['-m', 'pip', 'install', '--quiet', '--no-compile', '--target',
      join(folder, 'site'), ...requirements(folder, AUTOBAHN)], { ...env, PYTHONPATH: boot });
  });
}

function wycheproofFolder() {
  return once('wycheproof', WYCHEPROOF, (folder) => {
    say(`go: ${WYCHEPROOF.module} from the Go module proxy, into ${folder}`);
    // The version and the sum are ours: what the machine's go is set to mustn't change them.
    const env = { GOPATH: folder, GOMODCACHE: join(folder, 'mod'), GOFLAGS: '-modcacherw',
      GOTOOLCHAIN: 'local', GO111MODULE: 'on', GOWORK: 'off' };
    const said = JSON.parse(command('go', ['mod', 'download', '-json', WYCHEPROOF.module], env));
    if (said.Sum !== WYCHEPROOF.sum) throw new Error(`wycheproof has the sum ${said.Sum}`);
  });
}

/** Takes what isn't there yet; gives where things are. */
export function fetchAll() {
  console.log(`what is taken from package registries is in ${cache}`);
  mkdirSync(cache, { recursive: true });
  const debian = debianFolder();
  const corpora = corporaFolder();
  const autobahn = autobahnFolder(debian);
  const wycheproof = wycheproofFolder();
  return {
    pypy: pypy(debian),
    site: join(autobahn, 'site'),
    json: join(corpora, JSON_TEXTS),
    gunicorn: join(corpora, 'gunicorn-23.0.0/tests/requests'),
    llhttp: join(corpora, 'aiohttp-3.13.2/vendor/llhttp/test/request'),
    wycheproof: join(wycheproof, 'mod', WYCHEPROOF.module, 'testvectors_v1'),
  };
}
