// Autobahn|Testsuite's fuzzing client against a live Halley whose edge echoes.
//
// The suite wants every message back, which no Halley does. So this suite has an edge of its own:
// built from the same source with the feature `echo`, by which a message goes into the outbox as it
// came instead of becoming an operation. All else is the release: listener, opening handshake,
// session, decoder, outbox, closing handshake. The suite counts every unrequested message as a
// wrong answer: so that edge sends no heartbeat, and the session starts with a cursor, as one
// without would get a welcome.

import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  copyFileSync, cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const RUN_MS_MAX = 3_600_000;
const MESSAGE_BYTES_MAX = 16_777_216; // group 9 goes up to that
const GROUPS = (process.env.DOORS_AUTOBAHN ?? '1 2 3 4 5 6 7 9 10 12 13').split(' ');

const root = fileURLToPath(new URL('../..', import.meta.url));
const base = process.env.REBAR_BASE_DIR || join(root, '_build');
const target = join(process.env.CARGO_TARGET_DIR || join(root, 'edge/target'), 'doors');

/** A copy of the release whose edge echoes, in `folder`; gives its launcher. */
function echoingRelease(folder) {
  console.log('  builds the edge that echoes');
  execFileSync('cargo', ['build', '--release', '--locked', '--quiet', '-p', 'halley-edge',
    '--features', 'echo', '--manifest-path', join(root, 'edge/Cargo.toml'), '--target-dir',
    target], { stdio: ['ignore', 'inherit', 'inherit'] });
  const release = join(folder, 'release');
  cpSync(join(base, 'default/rel/halley'), release, { recursive: true });
  copyFileSync(join(target, 'release/halley-edge'), join(release, 'bin/halley-edge'));
  const launcher = join(folder, 'halley');
  const script = readFileSync(join(root, 'tools/halley.in'), 'utf8');
  writeFileSync(launcher, script.replace('@RELEASE@', release), { mode: 0o755 });
  return launcher;
}

/** What one case came to, in the suite's words; how it closed is said where that is bad. */
function verdict({ behavior, behaviorClose }) {
  const fine = ['OK', 'INFORMATIONAL', behavior].includes(behaviorClose);
  return fine ? behavior : `${behavior}, close ${behaviorClose}`;
}

/** Runs the fuzzing client; gives its index of cases. */
async function fuzz({ pypy, site }, url, folder) {
  const spec = join(folder, 'spec.json');
  writeFileSync(spec, JSON.stringify({
    outdir: join(folder, 'reports'), servers: [{ agent: 'Halley', url }],
    cases: GROUPS.map((group) => `${group}.*`), 'exclude-cases': [], 'exclude-agent-cases': {},
  }));
  const script = fileURLToPath(new URL('lib/wstest.py', import.meta.url));
  const child = spawn(pypy.program, [script, site, '-m', 'fuzzingclient', '-s', spec], {
    cwd: folder, env: { ...process.env, ...pypy.env }, stdio: ['ignore', 'pipe', 'pipe'],
    timeout: RUN_MS_MAX,
  });
  let said = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (data) => { said += data; });
  const [code] = await once(child, 'close');
  if (code !== 0) throw new Error(`wstest ended with ${code}:\n${said.slice(-4_000)}`);
  const index = JSON.parse(readFileSync(join(folder, 'reports/index.json'), 'utf8')).Halley;
  // It ends without an error when it can't connect any more.
  const [planned, ran] = [Number(/will run (\d+) test/.exec(said)?.[1]), Object.keys(index).length];
  if (ran !== planned) throw new Error(`${ran} of ${planned} cases ran; ${said.slice(-200)}`);
  return index;
}

/** Cases named by their numbers; without those of an extension that isn't agreed on. */
export async function run(at) {
  const folder = mkdtempSync(join(tmpdir(), 'halley-doors-'));
  process.env.LAUNCHER = echoingRelease(folder);
  const { start } = await import('../lib/halley.mjs');
  const { http } = await import('../lib/client.mjs');
  const halley = await start({ settings: {
    HALLEY_LIMITS_MESSAGE_BYTES_MAX: `${MESSAGE_BYTES_MAX}`,
    HALLEY_LIMITS_OUTBOX_BYTES_MAX: `${2 * MESSAGE_BYTES_MAX}`,
    HALLEY_STREAM_HEARTBEAT: '1h',
  } });
  try {
    const polled = await http('GET', `${halley.publicUrl}/v1/poll?user=autobahn&timeout=0`);
    const cursor = encodeURIComponent(polled.json.cursor);
    const url = `ws://127.0.0.1:${halley.publicPort}/v1/ws?user=autobahn&cursor=${cursor}`;
    const cases = Object.entries(await fuzz(at, url, folder)).map(([name, result]) => {
      const got = verdict(result);
      return { name, want: result.behavior === 'INFORMATIONAL' ? 'INFORMATIONAL' : 'OK', got };
    });
    const offered = cases.filter((one) => !one.got.startsWith('UNIMPLEMENTED'));
    const left = new Set(cases.filter((one) => !offered.includes(one))
      .map((one) => one.name.split('.')[0]));
    return { cases: offered,
      notes: [...left].map((group) => `group ${group}: not offered by the server`) };
  } catch (error) {
    throw new Error(`${error.message}\nthe log's tail:\n${halley.logTail}`);
  } finally {
    await halley.stop();
    rmSync(folder, { recursive: true, force: true });
  }
}
