// Erlang back ends on other nodes (docs/internals/remote.md): the example as a person runs it, and
// what the configuration refuses. halley_backends_SUITE has faults between the two nodes.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { after } from 'node:test';
import { fileURLToPath } from 'node:url';
import { api, publish } from '../lib/client.mjs';
import {
  freePort, kill, listeningPorts, prepare, scratchFile, start, test,
} from '../lib/halley.mjs';
import { closeStreams, sse } from '../lib/streams.mjs';
import { until } from '../lib/wait.mjs';

const EXAMPLE = fileURLToPath(new URL('../../examples/erlang/run.mjs', import.meta.url));
const START_MS_MAX = 90_000;
const ORDERS = 20;
const KILL_EVERY = 10;

after(closeStreams);

test('without remote.listen nothing of it runs', async () => {
  const halley = await start();
  const metrics = (await api(halley, 'GET', '/metrics')).body;
  assert.doesNotMatch(metrics, /halley_remote_sessions/);
  await halley.stop();
});

test('with it the brain listens there, and not before it can read a secret', async () => {
  const port = await freePort();
  const settings = (file) => ({ HALLEY_REMOTE_LISTEN: `127.0.0.1:${port}`,
    HALLEY_REMOTE_BACKENDS: 'shop@127.0.0.1', HALLEY_REMOTE_SECRET_FILE: file });
  const halley = await prepare();
  const short = scratchFile(halley, 'short', 'short\n');
  const good = scratchFile(halley, 'good', `${'s'.repeat(32)}\n`);
  for (const [file, line] of [[`${short}-nowhere`, /remote.secret_file = .*: no such file/],
    [short, /remote.secret_file: .* has less than 16 bytes/]]) {
    const refused = await prepare({ settings: settings(file) });
    refused.spawn();
    assert.equal((await refused.exited()).code, 1);
    assert.match(refused.stderr, line);
    assert.deepEqual(refused.edgePids(), [], 'no edge is left behind');
    refused.remove();
  }
  const listening = await start({ settings: settings(good) });
  await until('it listens there', () => listeningPorts(listening.brainPid()).includes(port));
  await listening.stop();
  halley.remove();
});

test('the lines of docs/guides/back-ends.md for halley.conf', async () => {
  const guide = readFileSync(new URL('../../docs/guides/back-ends.md', import.meta.url), 'utf8');
  const [, lines] = guide.match(/```\n(remote\.listen[^]*?)```/);
  const settings = Object.fromEntries(lines.trim().split('\n').map((line) => {
    const [key, value] = line.split(' = ');
    return [`HALLEY_${key.toUpperCase().replaceAll('.', '_')}`, value];
  }));
  assert.deepEqual(Object.keys(settings), ['HALLEY_REMOTE_LISTEN', 'HALLEY_REMOTE_SECRET_FILE',
    'HALLEY_REMOTE_BACKENDS']);
  const port = await freePort();
  const halley = await prepare();
  settings.HALLEY_REMOTE_LISTEN = `127.0.0.1:${port}`;
  settings.HALLEY_REMOTE_SECRET_FILE = scratchFile(halley, settings.HALLEY_REMOTE_SECRET_FILE,
    's'.repeat(64));
  const listening = await start({ settings });
  await until('it listens there', () => listeningPorts(listening.brainPid()).includes(port));
  const metrics = (await api(listening, 'GET', '/metrics')).body;
  assert.match(metrics, /halley_remote_up\{node="shop@10\.0\.0\.7"\} 0/);
  await listening.stop();
  halley.remove();
});

test('the example: each order is answered once, to its customer, also when the desk is killed',
  () => ordered());

async function ordered() {
  const [publicPort, apiPort] = [await freePort(), await freePort()];
  const halley = { publicUrl: `http://127.0.0.1:${publicPort}`,
    apiUrl: `http://127.0.0.1:${apiPort}` };
  const example = spawn(process.execPath, [EXAMPLE], { env: { ...process.env,
    REMOTE_PORT: `${await freePort()}`,
    HALLEY_PUBLIC_LISTEN: `127.0.0.1:${publicPort}`,
    HALLEY_API_LISTEN: `127.0.0.1:${apiPort}` } });
  let said = '';
  for (const output of [example.stdout, example.stderr]) {
    output.on('data', (data) => { said += data; });
  }
  try {
    await until('the desk is open', () => said.includes('desk: open'), START_MS_MAX)
      .catch((error) => { throw new Error(`${error.message}; it said:\n${said}`); });
    // A desk may attach to the brain before the edge listens.
    await until('Halley serves', () => fetch(`${halley.apiUrl}/readyz`)
      .then(({ ok }) => ok, () => false), START_MS_MAX);
    const ann = await sse(halley, 'ann');
    const bob = await sse(halley, 'bob');
    const ids = [];
    let kills = 0;
    for (let n = 0; n < ORDERS; n += 1) {
      if (n % KILL_EVERY === 1) {
        kills += 1;
        const pid = await until('the desk is there', () =>
          [...said.matchAll(/desk: open, process (\d+)/g)][kills - 1]?.[1], START_MS_MAX);
        kill(Number(pid), 'SIGKILL');
      }
      const customer = n % 2 === 0 ? 'ann' : 'bob';
      ids.push((await publish(halley, 'orders', { customer, product: `honey ${n}` })).id);
    }
    for (const [n, id] of ids.entries()) {
      const event = await (n % 2 === 0 ? ann : bob).events.next(`the answer to order ${n}`,
        START_MS_MAX);
      assert.deepEqual([event.id, event.private, event.data],
        [`answer-${id}`, true, { order: id, text: `on its way: honey ${n}` }]);
    }
  } finally {
    example.kill('SIGTERM');
  }
  assert.deepEqual(await once(example, 'exit'), [0, null]);
}
