// Hooks of the release, with real sessions (docs/guides/hooks.md): which are sent, which aren't
// although brain and edge die, and the command.

import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { after } from 'node:test';
import { api, http, publish } from '../lib/client.mjs';
import { Endpoint, SECRET } from '../lib/endpoint.mjs';
import { checkHooks, Numbers } from '../lib/hooks-checker.mjs';
import { freePort, kill, prepare, scratchFile, start, test } from '../lib/halley.mjs';
import { metric } from '../lib/metrics.mjs';
import { closeStreams, sse, ws } from '../lib/streams.mjs';
import { sleep, until } from '../lib/wait.mjs';

const CLOSED_AFTER_MS = 5_000;
after(closeStreams);

async function hooked(events, more = {}) {
  const endpoint = await new Endpoint(await freePort()).start();
  const halley = await prepare({ settings: {
    HALLEY_HOOKS_URL: endpoint.url,
    HALLEY_HOOKS_EVENTS: events,
    HALLEY_HOOKS_CLOSED_AFTER: `${CLOSED_AFTER_MS}ms`,
    ...more,
  } });
  halley.settings.HALLEY_HOOKS_SECRET_FILE = scratchFile(halley, 'hooks-secret', `${SECRET}\n`);
  return { endpoint, halley };
}

async function ended({ endpoint, halley }) {
  closeStreams();
  await halley.stop();
  await endpoint.stop();
  assert.equal(endpoint.forged, 0);
}

const said = async (halley, user, event) => {
  const { status, body } = await http('POST', `${halley.publicUrl}/v1/me/events?user=${user}`,
    { body: JSON.stringify(event) });
  assert.equal(status, 200, body);
  return JSON.parse(body).id;
};

test('without hooks.* nothing of it runs, and the command says so', async () => {
  const halley = await start();
  assert.doesNotMatch((await api(halley, 'GET', '/metrics')).body, /halley_hooks_waiting/);
  const { code, stderr } = await halley.command('hooks', 'check');
  assert.deepEqual([code, /there are no hooks/.test(stderr)], [1, true]);
  await halley.stop();
});

test('check sends a signed test, and says what is wrong', async () => {
  const both = await hooked('published');
  const { endpoint, halley } = both;
  assert.deepEqual(await halley.command('hooks', 'check'), { code: 0, stderr: '',
    stdout: 'hooks.url took a signed test, and refused one with a wrong signature\n' });
  assert.deepEqual([endpoint.of('test').length, endpoint.forged], [1, 1]);
  endpoint.answer = () => 500;
  const refused = await halley.command('hooks', 'check');
  assert.deepEqual([refused.code, /must answer 2xx/.test(refused.stdout)], [1, true]);
  await endpoint.stop();
  const gone = await halley.command('hooks', 'check');
  assert.deepEqual([gone.code, /can't be reached/.test(gone.stdout)], [1, true]);
  assert.doesNotMatch((await halley.command('config')).stdout, /127\.0\.0\.1:\d+\/hooks/);
  halley.remove();
});

test('a user comes, publishes by both ways, goes; an event finds nobody', async () => {
  const both = await hooked('opened,closed,published,undelivered,occupied,vacated',
    { HALLEY_HOOKS_SUBJECTS: 'room/*', HALLEY_HOOKS_USERS: 'ann,bob' });
  const { endpoint, halley } = both;
  await halley.start();
  await sse(halley, { user: 'ann', subjects: 'room/7' });
  await until('ann is told of', () => endpoint.of('opened').length === 1);
  const first = await said(halley, 'ann', { subject: 'room/7', data: { text: 'hi' } });
  const { socket } = await ws(halley, 'ann');
  socket.send(JSON.stringify({ op: 'publish', subject: 'room/7', data: 2, ref: 1 }));
  await until('both are told of', () => endpoint.of('published').length === 2);
  const [one, two] = endpoint.of('published');
  assert.deepEqual([one.user, one.event.id, one.event.data], ['ann', first, { text: 'hi' }]);
  assert.deepEqual([two.user, two.event.data], ['ann', 2]);
  // Nothing counts as undelivered until the brain has been linked for three seconds.
  const ids = [];
  await until('bob has nothing', async () => {
    const { json } = await api(halley, 'POST', '/v1/events', { to: ['ann', 'bob'], data: 3 });
    ids.push(json.id);
    await sleep(1_000);
    return endpoint.of('undelivered').length > 0;
  });
  await until('the last one has found nobody, too', () =>
    endpoint.of('undelivered').at(-1).event.id === ids.at(-1));
  const undelivered = endpoint.of('undelivered');
  assert.deepEqual(undelivered.map(({ users, event }) => [users, event.id]),
    ids.slice(-undelivered.length).map((id) => [['bob'], id]));
  closeStreams();
  await until('ann has left', () => endpoint.of('closed').length === 1);
  await until('the room is empty', () => endpoint.of('vacated').length === 1);
  assert.deepEqual(endpoint.of('occupied').map(({ subject }) => subject), ['room/7']);
  assert.deepEqual(endpoint.hooks.filter(({ user }) => user === 'ann').map(({ type }) => type),
    ['opened', 'published', 'published', 'closed']);
  await ended(both);
});

test('kills of brain and edge tell nothing false of who comes back', async () => {
  const both = await hooked('opened,closed,occupied,vacated');
  const { endpoint, halley } = both;
  await halley.start();
  const users = Array.from({ length: 20 }, (_, n) => `u${n}`);
  const open = () => Promise.all(users.map((user) => sse(halley, { user, subjects: 'room' })));
  await open();
  await until('all are told of', () => endpoint.of('opened').length === 20);
  await halley.killBrain();
  await halley.start();
  await sleep(4_000);
  const edge = halley.edgePid();
  kill(edge, 'SIGKILL');
  await until('another edge', () => halley.edgePid() !== edge);
  await halley.ready();
  const back = await open();
  await sleep(10_000);
  assert.deepEqual(endpoint.hooks.map(({ type }) => type).sort(),
    ['occupied', ...users.map(() => 'opened')]);
  for (const stream of back) stream.close();
  await until('now they are closed', () => endpoint.of('closed').length === 20);
  assert.deepEqual(endpoint.of('closed').map(({ user }) => user).sort(), [...users].sort());
  await ended(both);
});

test('a brain that stood still tells nothing of who came back meanwhile', async () => {
  const both = await hooked('opened,closed');
  const { endpoint, halley } = both;
  await halley.start();
  const open = () => Promise.all(Array.from({ length: 10 }, (_, n) => sse(halley, `u${n}`)));
  const brain = halley.brainPid();
  let closed = 0;
  // On a busy machine they may be told as closed before the brain stands still: then once more.
  for (let isEarly = false; !isEarly;) {
    const streams = await open();
    await until('all are told of', () => endpoint.of('opened').length === closed + 10);
    // By then who is away is looked at.
    await sleep(3_500);
    const since = performance.now();
    for (const stream of streams) stream.close();
    await until('all are gone', async () =>
      (await metric(halley, 'halley_sessions')) === 0);
    await sleep(2_500);
    kill(brain, 'SIGSTOP');
    isEarly = performance.now() - since < CLOSED_AFTER_MS;
    if (!isEarly) {
      kill(brain, 'SIGCONT');
      closed += 10;
      await until('all are told as closed', () => endpoint.of('closed').length === closed);
    }
  }
  let back;
  try {
    back = open();
    await sleep(3_500);
  } finally {
    kill(brain, 'SIGCONT');
  }
  await back;
  await sleep(3_000);
  assert.equal(endpoint.of('closed').length, closed);
  await ended(both);
});

test('the checker sees what is missing, too early and again', () => {
  const numbers = new Numbers();
  for (const number of [0, 1, 1, 3, 2, 0, 5]) numbers.see('ann', number);
  assert.deepEqual([numbers.seen('ann'), numbers.seen('bob'), numbers.repeated, numbers.early],
    [4, 0, 2, ['ann: 3 before 2', 'ann: 5 before 4']]);
});

test('of a request that was tried again any line may be first, but before the next request', () => {
  const numbers = new Numbers();
  numbers.tried('ann', 10);
  for (const number of [...Array(10).keys(), 19, 10, 25]) numbers.see('ann', number);
  assert.deepEqual([numbers.seen('ann'), numbers.early], [11, ['ann: 25 before 11']]);
  for (let number = 11; number < 19; number += 1) numbers.see('ann', number);
  assert.deepEqual([numbers.seen('ann'), numbers.repeated], [20, 0]);
});

test('nothing is lost while the endpoint is down and fails, and the brain is killed', async () => {
  const { acked, lost, disorder, forged } = await checkHooks({ rate: 300, seconds: 20, down: 8,
    kills: 3, flaky: 0.2, users: 20, seed: 11,
    settings: { HALLEY_LIMITS_HOOKS_RETRY_MS_MAX: '1000' } });
  assert.ok(acked > 1000, `${acked} acknowledged`);
  assert.deepEqual({ lost, disorder, forged }, { lost: 0, disorder: [], forged: 0 });
});

test('auth.connect_url is asked who may connect, and after a kill who may stay', async () => {
  const asked = [];
  let allowed = () => 200;
  const server = createServer((request, response) => {
    let body = '';
    request.on('data', (part) => { body += part; });
    request.on('end', () => {
      const { user } = JSON.parse(body).connect;
      asked.push(user);
      response.statusCode = allowed(user);
      response.end();
    });
  });
  const port = await freePort();
  server.listen(port, '127.0.0.1');
  const halley = await prepare({ settings: {
    HALLEY_AUTH_CONNECT_URL: `http://127.0.0.1:${port}/connect`,
    HALLEY_AUTH_CONNECT_TTL: '1s',
  } });
  halley.settings.HALLEY_HOOKS_SECRET_FILE = scratchFile(halley, 'hooks-secret', `${SECRET}\n`);
  await halley.start();
  allowed = (user) => (user === 'eve' ? 403 : 200);
  const ann = await sse(halley, { user: 'ann', subjects: 'room' });
  assert.equal(ann.status, 200);
  const eve = await http('GET', `${halley.publicUrl}/v1/stream?user=eve`);
  assert.deepEqual([eve.status, eve.json.error.code], [403, 'connect_refused']);
  assert.deepEqual(asked, ['ann', 'eve']);
  await publish(halley, 'room', 1);
  assert.equal((await ann.event()).data, 1);
  allowed = () => 500;
  const bob = await http('GET', `${halley.publicUrl}/v1/poll?user=bob`);
  assert.deepEqual([bob.status, bob.json.error.code], [503, 'connect_unavailable']);
  allowed = () => 403;
  await halley.killBrain();
  await halley.start();
  await ann.ended();
  closeStreams();
  await halley.stop();
  server.close();
});
