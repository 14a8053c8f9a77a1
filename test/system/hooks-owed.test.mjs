// An event that no session of a user ever had causes `undelivered`, once, whatever delays hooks
// meanwhile and however soon the user is back; and no user is named who has the event
// (docs/guides/hooks.md, "What undelivered means").

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after } from 'node:test';
import { api, follow, sessionsOf } from '../lib/client.mjs';
import { Endpoint, SECRET } from '../lib/endpoint.mjs';
import { freePort, prepare, scratchFile, test } from '../lib/halley.mjs';
import { metric } from '../lib/metrics.mjs';
import { closeStreams, ndjson, sse, ws } from '../lib/streams.mjs';
import { sleep, until } from '../lib/wait.mjs';

/** Of the two seconds in which a cursor is in time; a busy machine may need another try. */
const IN_TIME_MS = 1_200;
const TOLD_MS_MAX = 90_000;
const DISK_BYTES = 262_144;
after(closeStreams);

/** Users of this Halley, what is owed to them, and what nobody can know. */
class Stories {
  owed = [];
  undecided = new Set();

  constructor(halley) {
    this.halley = halley;
  }

  /** Gives the answer of an event that found so many sessions. */
  async publish(whom, found) {
    const { status, json, body } = await api(this.halley, 'POST', '/v1/events',
      { ...whom, data: 1 });
    assert.equal(status, 200, body);
    assert.equal(json.sessions, found, JSON.stringify(whom));
    return json.id;
  }

  async owes(users, whom, found = 0) {
    const id = await this.publish(whom, found);
    for (const user of users) this.owed.push(`${id} ${user}`);
    return id;
  }

  async leave(user, stream) {
    stream.close();
    await this.isAway(user);
  }

  isAway(user) {
    return until(`${user} has no session`, async () => await sessionsOf(this.halley, user) === 0);
  }

  /** Its session has what is published from now on, and nothing from before. */
  async backWithout(user, open = sse) {
    const stream = await open(this.halley, user);
    await until(`${user} has a session`, async () => await sessionsOf(this.halley, user) === 1);
    const id = await this.publish({ to: [user] }, 1);
    assert.equal((await stream.event()).id, id, `${user} came without a cursor`);
    return stream;
  }

  /** Was there once, away when the event comes, and back without a cursor behind it. */
  async missed(user, whom, open = sse) {
    await this.leave(user, await this.backWithout(user, open));
    await this.owes([user], whom);
    const back = await this.backWithout(user, open);
    await this.leave(user, back);
  }

  async ofFollower() {
    await follow(this.halley, ['user/follower', 'room/1']);
    await this.missed('user/follower', { subject: 'room/1' });
  }

  async ofFollowerOfOne() {
    await follow(this.halley, ['user/joint', 'room/2']);
    await this.missed('user/joint', { subjects: ['room/2', 'room/3'] });
  }

  /** Of two one is there: the other one is named alone. */
  async privately() {
    const there = await this.backWithout('user/one');
    await this.owes(['user/other'], { to: ['user/one', 'user/other'] }, 1);
    await there.event();
    await this.leave('user/other', await this.backWithout('user/other'));
    await this.leave('user/one', there);
  }

  /** Whoever leaves at once behind an event that it had, and is back without a cursor. */
  async had(user) {
    const there = await this.backWithout(user);
    const id = await this.publish({ to: [user] }, 1);
    assert.equal((await there.event()).id, id);
    await this.leave(user, there);
    await this.leave(user, await this.backWithout(user));
  }

  async flaps(user) {
    for (let n = 0; n < 4; n += 1) {
      const stream = await this.backWithout(user);
      assert.equal(await this.publish({ to: [user] }, 1), (await stream.event()).id);
      await this.leave(user, stream);
      await this.owes([user], { to: [user] });
    }
  }

  /** Back in time with its cursor, it is sent what it missed. */
  async caught(user) {
    for (let isInTime = false; !isInTime;) {
      const stream = await this.backWithout(user);
      const cursor = await stream.place();
      await this.leave(user, stream);
      const begin = performance.now();
      const id = await this.publish({ to: [user] }, 0);
      const back = await sse(this.halley, user, {}, cursor);
      assert.equal((await back.event()).id, id);
      isInTime = performance.now() - begin < IN_TIME_MS;
      if (!isInTime) this.undecided.add(id);
      await this.leave(user, back);
    }
  }

  all() {
    return Promise.all([
      this.missed('user/sse', { to: ['user/sse'] }),
      this.missed('user/ndjson', { to: ['user/ndjson'] }, ndjson),
      this.missed('user/ws', { to: ['user/ws'] }, ws),
      this.missed('user/own', { subject: 'user/own' }),
      this.ofFollower(), this.ofFollowerOfOne(), this.privately(), this.had('user/had'),
      this.flaps('user/flaps'), this.caught('user/caught'),
      this.owes(['user/never'], { to: ['user/never'] }),
    ]);
  }
}

/** A disk of its own for the queue, which is full while it is held. */
function fullDisk(halley) {
  const folder = join(halley.settings.HALLEY_DATA_DIR, 'hooks');
  const ballast = join(folder, 'ballast');
  mkdirSync(folder, { recursive: true });
  execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${DISK_BYTES}`, 'tmpfs', folder]);
  return {
    hold() {
      try {
        writeFileSync(ballast, Buffer.alloc(2 * DISK_BYTES, 1));
      } catch (error) {
        assert.equal(error.code, 'ENOSPC');
      }
    },
    release: () => rmSync(ballast),
    end: () => execFileSync('umount', ['-l', folder]),
  };
}

const HOLDS = [
  ['the endpoint is down and the queue at its bound', (_, endpoint) => ({
    hold: () => endpoint.stop(), release: () => endpoint.start(), fills: true })],
  ['the endpoint is down and the brain is killed', (halley, endpoint) => ({
    hold: () => endpoint.stop(),
    async release() {
      await halley.killBrain();
      await halley.start();
      await endpoint.start();
    },
    fills: true })],
  ['the endpoint answers 500 and the queue is at its bound', (_, endpoint) => ({
    hold() { endpoint.answer = () => 500; }, release: () => endpoint.mend(), fills: true })],
  ['the endpoint is slow and the queue at its bound', (_, endpoint) => ({
    hold() { endpoint.pauseMs = 500; }, release: () => endpoint.mend(), fills: true })],
  ['the disk of the queue is full', fullDisk],
  ['all is well', () => ({ hold() {}, release() {} })],
];

async function tell(halley, endpoint, { hold, release, fills = false }) {
  await halley.start();
  const stories = new Stories(halley);
  // From here on the brain knows who is there.
  await stories.publish({ to: ['user/first'] }, 0);
  await until('the first one is told', () => endpoint.of('undelivered').length > 0);
  await hold();
  if (fills) {
    await stories.publish({ to: ['user/fills'] }, 0);
    await until('the queue is at its bound', async () =>
      await metric(halley, 'halley_hooks_waiting_bytes') > 1);
  }
  await stories.all();
  // By now all of it would have been judged by who is there.
  await sleep(2_500);
  await release();
  const last = await stories.publish({ to: ['user/last'] }, 0);
  await until('the last one is told', () =>
    endpoint.of('undelivered').some(({ event }) => event.id === last), TOLD_MS_MAX);
  const told = endpoint.of('undelivered')
    .filter(({ event }) => !stories.undecided.has(event.id))
    .flatMap(({ event, users }) => users.map((user) => `${event.id} ${user}`))
    .filter((one) => !/ user\/(first|fills|last)$/.test(one));
  assert.deepEqual(told.sort(), stories.owed.sort());
  assert.deepEqual([endpoint.of('gap').length, endpoint.forged], [0, 0]);
}

for (const [name, make] of HOLDS) {
  test(`who never had an event is told of once, who had it isn't: ${name}`, async (context) => {
    if (make === fullDisk && process.getuid() !== 0) {
      context.skip('mounting a tmpfs takes root');
      return;
    }
    const endpoint = await new Endpoint(await freePort()).start();
    const halley = await prepare({ settings: {
      HALLEY_HOOKS_URL: endpoint.url, HALLEY_HOOKS_EVENTS: 'undelivered',
      HALLEY_HOOKS_USERS: 'user/*', HALLEY_LIMITS_HOOKS_QUEUE_BYTES_MAX: '1',
      HALLEY_LIMITS_HOOKS_BATCH_MAX: '1', HALLEY_LIMITS_HOOKS_RETRY_MS_MAX: '500',
    } });
    halley.settings.HALLEY_HOOKS_SECRET_FILE = scratchFile(halley, 'secret', `${SECRET}\n`);
    const way = make(halley, endpoint);
    try {
      await tell(halley, endpoint, way);
      closeStreams();
      await halley.terminate();
    } finally {
      halley.killProcesses();
      way.end?.();
      halley.remove();
      await endpoint.stop().catch(() => {});
    }
  });
}
