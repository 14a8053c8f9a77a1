// The Python client (clients/python) at the real release: whatever dies, every event that was
// acknowledged is shown once, in order, by every transport; nothing is reported as missing.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { cp, mkdtemp, readdir, rm } from 'node:fs/promises';
import { connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { Client } from '../clients/lib/client.mjs';
import { follow } from '../lib/client.mjs';
import { kill, prepare, scratchFile, start, test } from '../lib/halley.mjs';
import { jwks, makeKey, mint, nowS } from '../lib/token.mjs';
import { sleep, until } from '../lib/wait.mjs';

const run = promisify(execFile);
const path = (name) => fileURLToPath(new URL(`../../${name}`, import.meta.url));
const PYTHON = process.env.HALLEY_PYTHON ?? path('.tools/python/bin/python');
const ADAPTER = [PYTHON, path('clients/python/tests/adapter.py')];
const TRANSPORTS = ['websocket', 'sse', 'ndjson', 'poll'];
/** For what must come back after a fault: waits by chance grow to some seconds. */
const BACK_MS_MAX = 60_000;
const LEAVE_MS = 10_000;

/** Between clients and Halley: `cut` takes the network away, `mend` brings it back. */
async function relay(port) {
  const sockets = new Set();
  let isThere = true;
  const server = createServer((near) => {
    if (!isThere) {
      near.destroy();
      return;
    }
    const far = connect(port, '127.0.0.1');
    for (const [one, other] of [[near, far], [far, near]]) {
      sockets.add(one);
      one.on('error', () => {});
      one.on('close', () => { sockets.delete(one); other.destroy(); });
      one.pipe(other);
    }
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const drop = () => { for (const socket of sockets) socket.destroy(); };
  return {
    url: `http://127.0.0.1:${server.address().port}`,
    cut() { isThere = false; drop(); },
    mend() { isThere = true; },
    close() { server.close(); drop(); },
  };
}

/** Publishes one event after the other until told to stop; gives the ids, in their order. */
function publishAll(publisher, subject) {
  const ids = [];
  let over = false;
  const all = (async () => {
    for (let n = 0; !over; n += 1) {
      const events = [{ subject, data: { n }, id: `n${n}` }];
      const { results, error } = await publisher.ask({ do: 'publish', events });
      assert.equal(error, undefined, `n${n} is acknowledged in the end`);
      ids.push(results[0].id);
      await sleep(40);
    }
  })();
  return { ids, async stop() { over = true; await all; } };
}

async function showAll(clients, ids) {
  for (const [n, client] of clients.entries()) {
    const has = () => client.ids.length >= ids.length;
    await client.until(`${ids.length} events by ${TRANSPORTS[n]}`, has, BACK_MS_MAX);
    assert.deepEqual(client.ids, ids, `each once, in order, by ${TRANSPORTS[n]}`);
    assert.deepEqual(client.told.filter((line) => line.gap), [], `no gap by ${TRANSPORTS[n]}`);
  }
}

const isOpen = (client) => client.states.at(-1) === 'open';

test('killed brain, killed edge, drain, offline: nothing lost, nothing twice', async () => {
  const halley = await start({ settings: { HALLEY_DRAIN_TIME: '1s' } });
  const network = await relay(halley.publicPort);
  const clients = TRANSPORTS.map(() => new Client(ADAPTER));
  const publisher = new Client(ADAPTER);
  try {
    await follow(halley, ...TRANSPORTS.map((transport) => [transport, 'news']));
    for (const [n, transport] of TRANSPORTS.entries()) {
      clients[n].say({ do: 'connect', url: network.url, user: transport,
        transports: [transport] });
    }
    publisher.say({ do: 'connect', url: halley.publicUrl, user: 'pub', transports: ['poll'] });
    await until('all are open', () => [publisher, ...clients].every(isOpen));
    const publishing = publishAll(publisher, 'news');
    const more = async (count) => {
      const enough = publishing.ids.length + count;
      await until(`${enough} events`, () => publishing.ids.length >= enough, BACK_MS_MAX);
    };

    await more(10);
    await halley.killBrain();
    await halley.start();
    await more(10);
    kill(halley.edgePid(), 'SIGKILL');
    await more(10);
    network.cut();
    await more(20);
    network.mend();
    await more(10);
    await halley.terminate();
    await halley.start();
    await more(10);
    await publishing.stop();
    await showAll(clients, publishing.ids);
    assert.ok(publishing.ids.length >= 70);
    assert.ok(clients.every(isOpen));
  } finally {
    await Promise.all([publisher, ...clients].map((client) => client.stop()));
    network.close();
    await halley.stop();
  }
});

test('tokens of some seconds: renewed before they end, over a WebSocket in band', async () => {
  const key = makeKey('HS256', 'k', 'a secret of thirty-two bytes, or more');
  const halley = await prepare();
  const file = scratchFile(halley, 'jwks.json', jwks(key));
  Object.assign(halley.settings, { HALLEY_AUTH_MODE: 'jwt', HALLEY_AUTH_KEYS: file,
    HALLEY_AUTH_LEEWAY: '1ms' });
  await halley.start();
  // Good for so long by `exp`; by `iat` the client takes it for 4 s, and has time to be late.
  const fresh = (sub, seconds, told = seconds) => () => mint(key, { sub,
    iat: nowS() + seconds - told, exp: nowS() + seconds,
    halley: { publish: ['*'], follow: ['*'] } });
  const clients = TRANSPORTS.map((transport) => new Client(ADAPTER, fresh(transport, 14, 4)));
  const publisher = new Client(ADAPTER, fresh('pub', 3_600));
  try {
    publisher.say({ do: 'connect', url: halley.publicUrl, tokens: true, transports: ['sse'] });
    for (const [n, transport] of TRANSPORTS.entries()) {
      clients[n].say({ do: 'connect', url: halley.publicUrl, tokens: true,
        transports: [transport] });
      await clients[n].ask({ do: 'follow', subject: 'news' });
    }
    await until('all are open', () => [publisher, ...clients].every(isOpen));
    const publishing = publishAll(publisher, 'news');
    await sleep(16_000);
    await until('each has been renewed', () => clients.every(({ told }) =>
      told.filter(({ want }) => want === 'token').length >= 3));
    await publishing.stop();
    await showAll(clients, publishing.ids);
    assert.ok(!clients[0].states.includes('reconnecting'), 'the WebSocket stayed');
  } finally {
    await Promise.all([publisher, ...clients].map((client) => client.stop()));
    await halley.stop();
  }
});

/** Who is there by what was told, once that has begun with a state. */
function there(told) {
  let users;
  for (const what of told) {
    if (what.users) users = new Set(what.users);
    else if (what.state === 'join') users?.add(what.user);
    else users?.delete(what.user);
  }
  return users && [...users].sort().join();
}

test('presence: told as it is, again after a killed edge, by each stream', async () => {
  const halley = await start({ settings: { HALLEY_PRESENCE_SUBJECTS: 'room/*',
    HALLEY_PRESENCE_LEAVE_AFTER: `${LEAVE_MS}ms` } });
  const clients = TRANSPORTS.filter((one) => one !== 'poll').map((transport) =>
    ({ transport, bob: new Client(ADAPTER) }));
  const [ann, eve] = [new Client(ADAPTER), new Client(ADAPTER)];
  const state = (...users) => ({ subject: 'room/7', online: users.length, users });
  const sit = async (client, user) => {
    client.say({ do: 'connect', url: halley.publicUrl, user, subjects: ['room/7'] });
    await until(`${user} is open`, () => isOpen(client));
  };
  try {
    await sit(ann, 'ann');
    for (const { bob, transport } of clients) {
      bob.say({ do: 'connect', url: halley.publicUrl, user: 'bob', transports: [transport] });
      await until(`${transport} is open`, () => isOpen(bob));
      assert.equal((await bob.ask({ do: 'watch', subject: 'room/7' })).result, true);
      await until(`${transport} knows of ann`, () => bob.presence.length === 1);
      assert.deepEqual(bob.presence, [state('ann')]);
    }
    await sit(eve, 'eve');
    for (const { bob, transport } of clients) {
      await until(`${transport} knows of eve`, () => bob.presence.length === 2);
      assert.deepEqual(bob.presence[1], { subject: 'room/7', user: 'eve', state: 'join' });
    }
    const killedAt = Date.now();
    kill(halley.edgePid(), 'SIGKILL');
    await until('both are back', () => [ann, eve].every((client) =>
      client.states.includes('reconnecting') && isOpen(client)), BACK_MS_MAX);
    for (const { bob, transport } of clients) {
      await until(`${transport} is told again`, () => there(bob.presence.slice(2)) === 'ann,eve',
        BACK_MS_MAX);
      assert.deepEqual(bob.ids, []);
    }
    // Clients that find no edge wait longer each time: who is late has left, and come again.
    const backAt = [ann, eve].map(({ told }) =>
      told.findLast((line) => line.state === 'open').at);
    if (Math.max(...backAt) - killedAt < LEAVE_MS) {
      for (const { bob } of clients) {
        const has = new Set(bob.presence.slice(2).map(({ users, state: change }) =>
          users?.join() ?? change));
        has.delete('join'); // of who is known to be there, that is nothing new
        assert.deepEqual([...has], ['ann,eve'], 'nobody has left');
      }
    }
  } finally {
    await Promise.all([ann, eve, ...clients.map(({ bob }) => bob)].map((client) => client.stop()));
    await halley.stop();
  }
});

test('what users and servers do besides', async () => {
  const halley = await start();
  const bob = new Client(ADAPTER);
  try {
    bob.say({ do: 'connect', url: halley.publicUrl, user: 'bob' });
    await until('bob is there', () => isOpen(bob));
    const ask = async (command) => (await bob.ask(command)).result;
    assert.deepEqual(await ask({ do: 'follow', subject: 'a/ä b' }), { added: 1, already: 0 });
    assert.deepEqual(await ask({ do: 'follow', subject: 'a/ä b' }), { added: 0, already: 1 });
    const events = [1, 2, 3].map((data) => ({ subject: 'a/ä b', data }));
    const { results } = await bob.ask({ do: 'publish', events });
    await until('three events', () => bob.ids.length === 3);
    assert.deepEqual(bob.ids, results.map(({ id }) => id));
    assert.equal(await ask({ do: 'presence', user: 'bob' }), true);
    assert.equal(await ask({ do: 'presence', user: 'nobody' }), false);
    assert.deepEqual(await ask({ do: 'unfollow', subject: 'a/ä b' }), { removed: 1, absent: 0 });
    const { stdout } = await promisify(execFile)(
      PYTHON, [path('clients/python/tests/server_story.py'), halley.apiUrl]);
    assert.equal(stdout.trim(), 'all holds');
    const newest = await promisify(execFile)(PYTHON,
      [path('clients/python/tests/newest_story.py'), halley.publicUrl, halley.apiUrl]);
    assert.equal(newest.stdout.trim(), 'all holds');
  } finally {
    await bob.stop();
    await halley.stop();
  }
});

test('pip install: a fresh environment has the client, its types and nothing of the checkout', () =>
  installed());

/** Built from a copy, since building writes beside the sources; no registry is asked. */
async function installed() {
  const folder = await mkdtemp(join(tmpdir(), 'halley-pip-'));
  try {
    const [source, wheels, fresh] = ['source', 'wheels', 'fresh'].map((name) => join(folder, name));
    await cp(path('clients/python'), source, { recursive: true,
      filter: (from) => !/egg-info|build$|__pycache__/.test(from) });
    const offline = ['--no-index', '--no-deps', '--quiet', '--disable-pip-version-check'];
    await run(PYTHON, ['-m', 'pip', 'wheel', ...offline, '--no-build-isolation', '-w', wheels,
      source]);
    await run('python3', ['-m', 'venv', fresh]);
    const python = join(fresh, 'bin/python');
    const [wheel] = await readdir(wheels);
    await run(python, ['-m', 'pip', 'install', ...offline, join(wheels, wheel)]);
    // What it depends on is taken from where the tests have it.
    const { stdout: others } = await run(PYTHON,
      ['-c', 'import aiohttp; print(aiohttp.__path__[0])']);
    const ask = 'import halley, pathlib; p = pathlib.Path(halley.__file__).parent; '
      + 'print(p); print((p / "py.typed").exists()); print(halley.connect.__name__)';
    const { stdout } = await run(python, ['-c', ask],
      { cwd: folder, env: { ...process.env, PYTHONPATH: dirname(others.trim()) } });
    const [place, isTyped, name] = stdout.trim().split('\n');
    assert.ok(place.startsWith(fresh), place);
    assert.deepEqual([isTyped, name], ['True', 'connect']);
  } finally {
    await rm(folder, { recursive: true });
  }
}
