// A clock that is set while Halley runs, and a machine that sleeps (docs/internals/clocks.md).
// Halley's clock alone is another one (`../lib/clock.mjs`).

import assert from 'node:assert/strict';
import { after } from 'node:test';
import { api, http, publish, sessionsOf } from '../lib/client.mjs';
import { Clock } from '../lib/clock.mjs';
import { Endpoint, SECRET } from '../lib/endpoint.mjs';
import { freePort, freeze, kill, prepare, scratchFile, test } from '../lib/halley.mjs';
import { closeStreams, poll, sse, ws } from '../lib/streams.mjs';
import { bearer, jwks, makeKey, mint } from '../lib/token.mjs';
import { sleep, until } from '../lib/wait.mjs';

const [HOUR, DAY] = [3_600, 86_400];
const YEARS = 10 * 365 * DAY;
const endpoints = [];
after(async () => {
  closeStreams();
  for (const endpoint of endpoints) await endpoint.stop();
});

const key = makeKey('HS256', 'k', 'a secret of thirty-two bytes, or more');

/** A Halley with tokens, and with a clock of its own; not started yet. */
async function clocked(settings = {}) {
  const halley = await prepare({ settings: {
    HALLEY_AUTH_MODE: 'jwt', HALLEY_AUTH_LEEWAY: '1s', ...settings,
  } });
  halley.settings.HALLEY_AUTH_KEYS = scratchFile(halley, 'jwks.json', jwks(key));
  return { halley, clock: new Clock(halley) };
}

const RIGHTS = { publish: ['room'], subscribe: ['room'] };
const shown = (clock, user, claims = {}) =>
  bearer(mint(key, { sub: user, exp: clock.nowS + YEARS, halley: RIGHTS,
    ...claims }));

/** What happens to each kind of step, and back again: seconds, a leap second, hours, days. */
const STEPS = {
  'ten seconds on': (clock) => clock.step(10),
  'ten seconds back': (clock) => clock.step(-10),
  'a leap second': (clock) => clock.step(-1),
  'an hour on': (clock) => clock.step(HOUR),
  'an hour back': (clock) => clock.step(-HOUR),
  'a day on': (clock) => clock.step(DAY),
  'a day back': (clock) => clock.step(-DAY),
  'a day before that': (clock) => clock.step(-DAY),
  'the machine sleeps for eight hours': async (clock, halley) => {
    const pids = [halley.brainPid(), halley.edgePid()];
    await Promise.all(pids.map(freeze));
    clock.sleep(8 * HOUR);
    await sleep(3_000);
    for (const pid of pids) kill(pid, 'SIGCONT');
  },
};

test('whatever the clock does, times are those of it, and order, cursors and sessions stay',
  async () => {
    const { halley, clock } = await clocked();
    const endpoint = await new Endpoint(await freePort()).start();
    endpoints.push(endpoint);
    endpoint.now = () => clock.nowMs;
    Object.assign(halley.settings, { HALLEY_HOOKS_URL: endpoint.url,
      HALLEY_HOOKS_EVENTS: 'published,opened,undelivered',
      HALLEY_HOOKS_SECRET_FILE: scratchFile(halley, 'secret', `${SECRET}\n`) });
    await halley.start();
    const bob = { user: 'bob', subjects: 'room' };
    const [stream, socket] = [await sse(halley, bob, shown(clock, 'bob')),
      await ws(halley, bob, { headers: shown(clock, 'bob') })];
    let sent = 0;
    const say = () => { sent += 1; return publish(halley, 'room', sent); };
    await say();
    let begun = 1;
    for (const [what, change] of Object.entries(STEPS)) {
      const cursor = await stream.place();
      await say();
      const before = sent;
      await change(clock, halley);
      // The edge looks at the wall's clock once a second.
      await sleep(1_500);
      const told = endpoint.of('published').length;
      const answer = await http('POST', `${halley.publicUrl}/v1/me/events`, {
        headers: shown(clock, 'ann'), body: JSON.stringify({ subject: 'room', data: sent += 1 }) });
      assert.equal(answer.status, 200, `${what}: ${answer.body}`);
      clock.assertNear(Date.parse(answer.headers.date), `${what}: Date`);

      // Signed by the new time, or it would be counted as forged.
      await until(`${what}: the hook`, () => endpoint.of('published').length > told);
      clock.assertNear(endpoint.of('published').at(-1).event.at, `${what}: at of a hook`);
      await publish(halley, 'carol', what);
      await until(`${what}: nobody had it`, () =>
        endpoint.of('undelivered').at(-1)?.event.data === what);
      assert.equal(endpoint.forged, 0, what);

      // A session that goes on with a cursor from before has all since, in order and once.
      const back = await sse(halley, bob, shown(clock, 'bob'), cursor);
      await say();
      for (const one of [stream, socket, back]) {
        const seen = [];
        while (seen.at(-1)?.data !== sent) seen.push(await one.event(`${what}: event ${sent}`));
        const first = seen[0].data;
        assert.deepEqual(seen.map(({ data }) => data), seen.map((_, n) => first + n), what);
        assert.ok(one === back ? first <= before : first === begun, `${what}: ${first}`);
        clock.assertNear(seen.at(-1).at, `${what}: at`);
        assert.equal(one.gaps.drain().length, 0, `${what}: no gap`);
        assert.equal(one.isClosed, undefined, `${what}: ${one.end}`);
      }
      back.close();
      begun = sent + 1;

      // Tokens are judged by the new time.
      const ask = async (claims) =>
        (await poll(halley, 'eve', { timeout: 0, headers: shown(clock, 'eve', claims) })).status;
      assert.deepEqual([await ask({ exp: clock.nowS + 60 }), await ask({ exp: clock.nowS - 60 }),
        await ask({ nbf: clock.nowS - 60 }), await ask({ nbf: clock.nowS + 60 })],
      [200, 401, 200, 401], what);
    }
    const { json: history } = await api(halley, 'GET', '/v1/history');
    const carols = Object.keys(STEPS).length;
    assert.equal(history.events, sent + carols, 'retention took nothing');
    closeStreams();
    await halley.stop();
  });

test('a session ends when its token does, by the clock as it is set', async () => {
  const { halley, clock } = await clocked({ HALLEY_STREAM_HEARTBEAT: '3s' });
  await halley.start();
  const open = (user, claims) => sse(halley, { user }, shown(clock, user, claims));
  const soon = await open('soon', { exp: clock.nowS + 8 });
  clock.step(-HOUR);
  await sleep(12_000);
  await publish(halley, 'soon', 1);
  assert.equal((await soon.event('an hour is left')).data, 1);
  for (const pass of [(s) => clock.step(s), (s) => clock.sleep(s)]) {
    const hour = await open('hour', { exp: clock.nowS + HOUR });
    const long = await open('long', { exp: clock.nowS + DAY });
    pass(2 * HOUR);
    await hour.ended();
    assert.equal(hour.end.reason, 'token_expired');
    await publish(halley, 'long', 1);
    assert.equal((await long.event('a day is left')).data, 1);
  }
  closeStreams();
  await halley.stop();
});

test('retention goes by a clock that no step moves, and a restart keeps it', async () => {
  const { halley, clock } = await clocked({ HALLEY_HISTORY_RETENTION: '10m' });
  await halley.start();
  const start = (await poll(halley, 'bob', { timeout: 0, headers: shown(clock, 'bob') })).cursor;
  const missed = async (cursor) => {
    const answer = await poll(halley, 'bob', { cursor, timeout: 1, headers: shown(clock, 'bob') });
    assert.equal(answer.gap, undefined);
    return answer.events.map(({ data }) => data);
  };
  const all = [];
  for (const step of [DAY, -DAY, -DAY, DAY]) {
    all.push(all.length);
    await publish(halley, 'bob', all.at(-1));
    clock.step(step);
    await sleep(1_500);
    assert.deepEqual(await missed(start), all, 'while it runs');
    await halley.terminate();
    clock.step(step === DAY ? -HOUR : HOUR);
    await halley.start();
    assert.deepEqual(await missed(start), all, 'after a restart, by another clock');
  }
  await halley.terminate();
  halley.settings.HALLEY_HISTORY_RETENTION = '2s';
  clock.step(-DAY);
  await halley.start();
  await until('what is from the future goes as well', async () =>
    (await api(halley, 'GET', '/v1/history')).json.events === 0);
  assert.equal(await sessionsOf(halley, 'bob'), 0);
  await halley.stop();
});

test('a drain has its time, whatever the clock says meanwhile', async () => {
  const { halley, clock } = await clocked({ HALLEY_DRAIN_TIME: '4s' });
  await halley.start();
  const stream = await sse(halley, { user: 'bob' }, shown(clock, 'bob'));
  const drained = halley.command('drain');
  await until('it drains', async () => (await api(halley, 'GET', '/readyz')).status !== 200);
  clock.step(HOUR);
  const { code, stdout, stderr } = await drained;
  assert.deepEqual([code, stderr], [0, ''], stdout);
  await stream.ended();
  await halley.exited();
  halley.remove();
});
