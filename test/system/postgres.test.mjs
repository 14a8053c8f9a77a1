// PostgreSQL with Halley (docs/guides/postgres.md): the example as a person runs it, and the
// promises when brain, PostgreSQL or their connection are killed while transactions go on.

import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { after, before } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { Postgres } from '../../examples/postgres/postgres.mjs';
import { openBrowser } from '../lib/browser.mjs';
import { api, http } from '../lib/client.mjs';
import { freePort, kill, prepare, start, test } from '../lib/halley.mjs';
import { metric } from '../lib/metrics.mjs';
import { serious } from '../lib/pages.mjs';
import { closeStreams, sse, ws } from '../lib/streams.mjs';
import { sleep, until } from '../lib/wait.mjs';

const EXAMPLE = fileURLToPath(new URL('../../examples/postgres/run.mjs', import.meta.url));
const START_MS_MAX = 90_000;

let postgres;
before(async () => { postgres = await Postgres.start(['max_wal_senders = 10']); });
after(async () => {
  closeStreams();
  await postgres?.stop();
});

const settingsOf = (follows) => ({
  HALLEY_POSTGRES_URL: postgres.url,
  HALLEY_POSTGRES_FOLLOWS: follows,
  HALLEY_POSTGRES_PUBLISH: 'on',
});

/** Sets it, and returns when the server has read it. */
async function nameStandbys(names) {
  postgres.sql(`ALTER SYSTEM SET synchronous_standby_names = '${names}'`);
  postgres.sql('SET synchronous_commit = local; SELECT pg_reload_conf()');
  await until('it knows', () => postgres.sql('SHOW synchronous_standby_names') === names);
}

test('without postgres.* nothing of it runs, and the command says so', async () => {
  const halley = await start();
  const metrics = (await api(halley, 'GET', '/metrics')).body;
  assert.doesNotMatch(metrics, /halley_postgres_streaming/);
  const { code, stderr } = await halley.command('postgres', 'check');
  assert.deepEqual([code, /there is no PostgreSQL/.test(stderr)], [1, true]);
  await halley.stop();
});

test('check says what is missing and mends nothing, setup does', async () => {
  postgres.sql('CREATE TABLE f (a int, b int)');
  const halley = await prepare({ settings: settingsOf('f(a, b)') });
  const first = await halley.command('postgres', 'check');
  assert.equal(first.code, 1);
  assert.match(first.stdout, /no publication halley\n +CREATE PUBLICATION "halley" FOR TABLE/);
  assert.match(first.stdout, /ALTER TABLE "public"."f" REPLICA IDENTITY FULL;/);
  const setup = await halley.command('postgres', 'setup');
  assert.deepEqual([setup.code, setup.stderr], [0, '']);
  const again = await halley.command('postgres', 'check');
  assert.deepEqual(again, { code: 0, stdout: 'PostgreSQL has all that is needed\n', stderr: '' });
  await nameStandbys('*');
  const warned = await halley.command('postgres', 'check');
  assert.deepEqual([warned.code, warned.stderr], [0, '']);
  assert.match(warned.stdout, /^warning: synchronous_standby_names is '\*'.* Name your standbys/);
  assert.ok(warned.stdout.endsWith('PostgreSQL has all that is needed\n'));
  await nameStandbys('');
  postgres.sql('DROP FUNCTION halley.publish_to');
  const without = await halley.command('postgres', 'check');
  assert.equal(without.code, 1);
  assert.match(without.stdout, /^missing: there is no function halley.publish_to\n/);
  halley.remove();
  postgres.sql('DROP PUBLICATION halley; DROP SCHEMA halley CASCADE; DROP TABLE f');
});

// docs/guides/postgres.md, "Synchronous replication". Each commit took up to 5 s once.
test('commits elsewhere wait for a standby that is there, and never long for Halley', async () => {
  const COMMITS = 10;
  const COMMITS_MS_MAX = 15_000;
  const STILL_MS = 3_000;
  postgres.sql('CREATE TABLE f (a int, b int, PRIMARY KEY (a, b)); CREATE TABLE others (n int)');
  const halley = await prepare({ settings: settingsOf('f(a, b)') });
  assert.equal((await halley.command('postgres', 'setup')).code, 0);
  await halley.start();
  await until('it streams', async () => await metric(halley, 'halley_postgres_streaming') === 1);
  const commit = () => promisify(execFile)('psql', ['-X', '-q', postgres.url, '-c',
    'INSERT INTO others VALUES (1)'], { timeout: 60_000 });
  const commits = async (where) => {
    const began = performance.now();
    for (let n = 0; n < COMMITS; n += 1) await commit();
    const ms = performance.now() - began;
    assert.ok(ms < COMMITS_MS_MAX, `${COMMITS} commits took ${Math.round(ms)} ms ${where}`);
  };
  const roles = () => postgres.sql('SELECT application_name, sync_state FROM pg_stat_replication '
    + 'ORDER BY 1').split('\n');
  await nameStandbys('*');
  try {
    // Halley looks every 5 s who is named.
    await commit();
    await sleep(6_000);
    await commits('with Halley alone');

    kill(halley.brainPid(), 'SIGSTOP');
    let isDone = false;
    const waits = commit().then(() => { isDone = true; });
    await sleep(STILL_MS);
    assert.equal(isDone, false, 'without a standby it waits, as it does without Halley');
    assert.equal(postgres.sql("SELECT count(*) FROM pg_stat_activity "
      + "WHERE wait_event = 'SyncRep'"), '1');
    kill(halley.brainPid(), 'SIGCONT');
    await waits;

    const folder = join(halley.folder, 'wal');
    mkdirSync(folder);
    const standby = spawn('pg_receivewal', ['--synchronous', '-D', folder, '-d', postgres.url],
      { stdio: 'ignore' });
    try {
      await until('the standby is what commits wait for', () =>
        roles().join() === 'halley|async,pg_receivewal|sync');
      kill(halley.brainPid(), 'SIGSTOP');
      await commits('with a standby, while Halley stands still');
      kill(halley.brainPid(), 'SIGCONT');
    } finally {
      standby.kill('SIGKILL');
    }
  } finally {
    kill(halley.brainPid(), 'SIGCONT');
    await nameStandbys('');
  }
  await halley.stop();
  postgres.sql("SELECT pg_drop_replication_slot('halley'); DROP PUBLICATION halley; "
    + 'DROP SCHEMA halley CASCADE; DROP TABLE f, others');
});

test('store.backend = postgres: what is answered is in the table, and in effect', async () => {
  postgres.sql('CREATE TABLE friends (a text, b text, PRIMARY KEY (a, b))');
  const halley = await prepare({ settings: {
    ...settingsOf('friends(a, b)'), HALLEY_STORE_BACKEND: 'postgres' } });
  assert.equal((await halley.command('postgres', 'setup')).code, 0);
  await halley.start();
  await until('it streams', async () => await metric(halley, 'halley_postgres_streaming') === 1);
  const table = () => postgres.sql("SELECT a || ' ' || b FROM friends ORDER BY 1");
  const lines = (...pairs) => pairs.map((pair) => `${pair}\n`).join('');
  const ask = (method, path, body) =>
    api(halley, method, path, body, { 'content-type': 'text/plain' });

  const first = await ask('POST', '/v1/follows', lines('ann bob', 'ann eve', 'x'));
  assert.deepEqual([first.json.added, first.json.errors_total], [2, 1]);
  assert.equal(table(), 'ann bob\nann eve');
  const socket = await ws(halley, 'dan');
  for (const op of ['follow', 'unfollow', 'follow']) {
    socket.socket.send(JSON.stringify({ op, subject: 'bob' }));
  }
  await until('three answers', () => socket.comments.drain().filter(({ ok }) => ok).length > 0
    && table().includes('dan bob'));
  await api(halley, 'POST', '/v1/events', { subject: 'bob', data: 1 });
  assert.equal((await socket.event()).data, 1);
  assert.equal((await api(halley, 'DELETE', '/v1/users/bob')).json.followers, 2);
  assert.equal(table(), 'ann eve');

  await postgres.end('SIGKILL');
  const away = await until('it is noticed', async () => {
    const answer = await ask('DELETE', '/v1/follows', lines('ann eve'));
    return answer.status === 503 && answer;
  });
  assert.match(away.json.error.code, /^postgres_(away|unknown)$/);
  assert.ok(Number(away.headers['retry-after']) >= 1);
  await postgres.run();
  await until('it is done', async () =>
    (await ask('DELETE', '/v1/follows', lines('ann eve'))).status === 200);
  assert.equal(table(), '');
  await halley.stop();
  postgres.sql("SELECT pg_drop_replication_slot('halley'); DROP PUBLICATION halley; "
    + 'DROP SCHEMA halley CASCADE; DROP TABLE friends');
});

test('the example: an order shows live with those who follow its product', async () => {
  const [publicPort, apiPort] = [await freePort(), await freePort()];
  const example = spawn(process.execPath, [EXAMPLE], { env: { ...process.env,
    HALLEY_PUBLIC_LISTEN: `127.0.0.1:${publicPort}`,
    HALLEY_API_LISTEN: `127.0.0.1:${apiPort}` } });
  let said = '';
  for (const output of [example.stdout, example.stderr]) {
    output.on('data', (data) => { said += data; });
  }
  const browser = await openBrowser();
  try {
    const shop = await until(`the shop is open; it said:\n${said}`,
      () => /open (http:\S+)\/\?customer/.exec(said)?.[1], START_MS_MAX);
    await until('the follows are there', async () => (await http('GET',
      `http://127.0.0.1:${apiPort}/metrics`)).body.includes('\nhalley_follows 3\n'), START_MS_MAX);
    const page = await browser.newPage();
    await page.goto(`${shop}/?customer=bob`);
    await until('bob is there', async () => (await http('GET',
      `http://127.0.0.1:${apiPort}/metrics`)).body.includes('\nhalley_sessions 1\n'));
    const order = (product) => http('POST', `${shop}/orders`,
      { body: JSON.stringify({ customer: "ann'; --", product }) });
    assert.equal((await order('honey')).body, '1');
    // It breaks a rule of the table: no order, and no event.
    assert.equal((await order('')).status, 400);
    assert.equal((await order('tea')).body, '3');
    const line = page.locator('li').first();
    await line.waitFor({ timeout: 20_000 });
    assert.equal(await line.textContent(), "order 3: ann'; -- has ordered tea");
    assert.equal(await page.locator('li').count(), 1);
    assert.deepEqual(await serious(page), []);
  } finally {
    await browser.close();
    example.kill('SIGTERM');
  }
  assert.deepEqual(await once(example, 'exit'), [0, null]);
});

test('kill -9 of the brain during the first copy', async () => {
  const ROWS = 300_000;
  postgres.sql('CREATE TABLE big (a int, b int, PRIMARY KEY (a, b)); '
    + `INSERT INTO big SELECT n, 1000000 FROM generate_series(1, ${ROWS}) n`);
  const halley = await prepare({ settings: settingsOf('big(a, b)') });
  assert.equal((await halley.command('postgres', 'setup')).code, 0);
  // Who is held up meanwhile sees only a copy that is whole: then the next one.
  for (let [follows, rounds] = [ROWS, 0]; follows === ROWS; rounds += 1) {
    assert.ok(rounds < 5, 'no copy is ever seen before it is whole');
    await halley.start();
    follows = await until('some are copied', () => metric(halley, 'halley_follows'));
    await halley.killBrain();
    if (follows === ROWS) {
      halley.killProcesses();
      await until('the edge is gone', () => halley.edgePids().length === 0);
      await until('the slot is free', () =>
        postgres.sql("SELECT pg_drop_replication_slot('halley')") !== undefined);
      rmSync(halley.settings.HALLEY_DATA_DIR, { recursive: true });
    }
  }
  postgres.sql('DELETE FROM big WHERE a <= 299990');
  await halley.start();
  await until('the follows are the table', async () => await metric(halley, 'halley_follows') === 10
    && await metric(halley, 'halley_postgres_streaming') === 1, 60_000);
  await halley.stop();
  postgres.sql("SELECT pg_drop_replication_slot('halley'); DROP PUBLICATION halley; "
    + 'DROP SCHEMA halley CASCADE; DROP TABLE big');
});

/** Transactions one after the other, each with a follow that comes or goes and an event. */
function write(isOver) {
  const psql = promisify(execFile);
  const one = async (id) => {
    const pair = `(${id % 50 + 10}, ${id % 7})`;
    const change = id % 3 === 0 ? `DELETE FROM follows WHERE (a, b) = ${pair}`
      : `INSERT INTO follows VALUES ${pair} ON CONFLICT DO NOTHING`;
    await psql('psql', ['-X', '-q', '-v', 'ON_ERROR_STOP=1', postgres.url, '-c',
      `BEGIN; ${change}; INSERT INTO written VALUES (${id}); `
      + `SELECT halley.publish('news', '${id}', 'event-${id}'); COMMIT`])
      .catch(() => sleep(50)); // Committed or not: the table says it.
  };
  return (async () => {
    for (let id = 1; !isOver(); id += 1) await one(id);
  })();
}

test('kill -9 of brain and PostgreSQL, cut connections: nothing is lost or doubled', async () => {
  postgres.sql('CREATE TABLE follows (a int, b int, PRIMARY KEY (a, b)); '
    + 'CREATE TABLE written (id int PRIMARY KEY); '
    + 'INSERT INTO follows SELECT n, n + 1000 FROM generate_series(1, 1000) n');
  const halley = await prepare({ settings: settingsOf('follows(a, b)') });
  assert.equal((await halley.command('postgres', 'setup')).code, 0);
  await halley.start();
  // It may have a password, and the edge needs it for nothing.
  assert.doesNotMatch(readFileSync(`/proc/${halley.edgePid()}/environ`, 'utf8'), /POSTGRES_URL/);
  assert.match((await halley.command('config')).stdout, /postgres.url = \(a secret\)/);
  const reader = await sse(halley, 'news');
  await until('it streams', async () => await metric(halley, 'halley_postgres_streaming') === 1);
  let isOver = false;
  const writer = write(() => isOver);
  for (let round = 0; round < 3; round += 1) {
    await sleep(700);
    await halley.killBrain();
    await halley.start();
    await sleep(700);
    await postgres.end('SIGKILL');
    await postgres.run();
    await sleep(700);
    postgres.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
      + "WHERE application_name = 'halley'");
  }
  const count = () => Number(postgres.sql('SELECT count(*) FROM written'));
  const enough = Math.max(20, count()) + 5;
  await until(`${enough} transactions`, () => count() >= enough);
  isOver = true;
  await writer;

  const written = postgres.sql('SELECT id FROM written ORDER BY id').split('\n');
  const seen = new Map();
  await until('every committed event has come', () => {
    for (const { id, data } of reader.events.drain()) seen.set(id, String(data));
    return written.every((id) => seen.get(`event-${id}`) === id);
  }, 60_000);
  assert.equal(seen.size, written.length, 'and no other');
  const past = (await api(halley, 'GET', '/v1/subjects/news/events?limit=1000')).json.events;
  assert.deepEqual(past.map(({ data }) => data).reverse(), written.map(Number), 'once, in order');
  const pairs = postgres.sql("SELECT a || ' ' || b FROM follows").split('\n').sort();
  await until('the follows are the table', async () =>
    await metric(halley, 'halley_follows') === pairs.length, 30_000);
  for (const user of new Set(pairs.map((pair) => pair.split(' ')[0]))) {
    const answer = await api(halley, 'GET', `/v1/users/${user}/following`);
    const theirs = answer.json.following.map((subject) => `${user} ${subject}`);
    assert.deepEqual(theirs.sort(), pairs.filter((pair) => pair.startsWith(`${user} `)));
  }
  await halley.stop();
});
