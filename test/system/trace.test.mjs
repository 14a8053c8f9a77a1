// docs/reference/http-api.md, "Trace": whether a user got an event. Each way in which a session can
// begin, last and end is a row: what the client really got, and the trace's right answers. A Yes
// for a client that didn't get it, and a No for one that did, are false in every row.

import assert from 'node:assert/strict';
import { after, before } from 'node:test';
import { api, follow, publish, sessionsOf, unfollow } from '../lib/client.mjs';
import { kill, start, test } from '../lib/halley.mjs';
import { Raw } from '../lib/raw.mjs';
import { ask, closeStreams, open, poll, sse, ws } from '../lib/streams.mjs';
import { until } from '../lib/wait.mjs';

const CELEBRITY = 3;
const SETTINGS = {
  HALLEY_LIMITS_GROUP_FOLLOWERS_MIN: `${CELEBRITY}`, HALLEY_LIMITS_GROUP_FOLLOWERS_LOW: '2',
  HALLEY_STREAM_RETRY: '100ms',
};
const STREAMS = ['sse', 'ndjson', 'ws'];

let halley;
before(async () => { halley = await start({ settings: SETTINGS }); });
after(async () => {
  closeStreams();
  await halley?.stop();
});

let users = 0;
const someone = () => `user-${users += 1}`;

async function traceOf(id, user, on = halley) {
  const { status, json } = await api(on, 'GET', `/v1/events/${id}/trace?user=${user}`);
  assert.equal(status, 200);
  return json;
}

const WORDS = { yes: /^Yes: /, no: /^No(, not yet)?: /, not_known: /^Not known: / };

/** The trace answers so, and nothing that the client knows to be false. */
async function expectAnswer({ id, user, got }, answer, on = halley) {
  const trace = await until('what is on its way has come', async () => {
    const found = await traceOf(id, user, on);
    return !found.verdict.startsWith('Not known yet') && found;
  });
  const said = `${trace.answer}, ${JSON.stringify(trace)}`;
  assert.notEqual(trace.answer, got ? 'no' : 'yes',
    `the client ${got ? 'got' : 'lacks'} it: ${said}`);
  assert.equal(trace.answer, answer, said);
  assert.match(trace.verdict, WORDS[answer]);
  return trace;
}

/** Whether the event comes to the stream; what is published behind it shows that it hasn't. */
async function gets(stream, id, user) {
  const { id: mark } = await publish(halley, user, 'mark');
  for (;;) {
    const event = await stream.event();
    if (event.id === id) return true;
    if (event.id === mark) return false;
  }
}

const gone = (user) => until('no session', async () => await sessionsOf(halley, user) === 0);
const here = (user) => until('a session', async () => await sessionsOf(halley, user) > 0);

/** A cursor as of now. */
const now = async (user) => (await poll(halley, user, { timeout: 0 })).cursor;

/** An event about the user's own subject. */
const to = async (user) => (await publish(halley, user, 'x')).id;

/** Live streams of the user by `opening` before and behind the event. */
const streamed = (transport, isBefore) => async (user) => {
  const early = isBefore && await open[transport](halley, user);
  const id = await to(user);
  const stream = early || await open[transport](halley, user);
  return { id, got: await gets(stream, id, user) };
};

async function celebrity(user) {
  const star = `star-${user}`;
  const fans = Array.from({ length: CELEBRITY }, (_, n) => [n === 0 ? user : `${user}-${n}`, star]);
  await follow(halley, ...fans);
  return star;
}

const WAYS = [
  ...STREAMS.flatMap((transport) => [
    [`a live session, by ${transport}`, 'yes', streamed(transport, true)],
    [`a session that began later, without a cursor, by ${transport}`, 'no',
      streamed(transport, false)],
    [`away, and back with a cursor from before, by ${transport}`, 'yes', async (user) => {
      const cursor = await now(user);
      const id = await to(user);
      const stream = await open[transport](halley, user, {}, cursor);
      return { id, got: await gets(stream, id, user) };
    }],
    [`back with a cursor that has the event, by ${transport}`, 'not_known', async (user) => {
      const id = await to(user);
      const stream = await open[transport](halley, user, {}, await now(user));
      return { id, got: await gets(stream, id, user) };
    }],
    [`begun later with the newest events, by ${transport}`, 'not_known', async (user) => {
      const id = await to(user);
      const stream = await open[transport](halley, { user, subject: user, last: 3 });
      return { id, got: await gets(stream, id, user) };
    }],
  ]),
  ['nobody came', 'no', async (user) => ({ id: await to(user), got: false })],
  ['there, and gone since', 'not_known', async (user) => {
    const stream = await sse(halley, user);
    const id = await to(user);
    const got = await gets(stream, id, user);
    stream.close();
    await gone(user);
    return { id, got };
  }],
  ['there, gone, and another session since, without a cursor', 'not_known', async (user) => {
    const stream = await sse(halley, user);
    const id = await to(user);
    const got = await gets(stream, id, user);
    stream.close();
    await gone(user);
    await sse(halley, user);
    return { id, got };
  }],
  ['one session began before the event, one after it', 'yes', async (user) => {
    const stream = await sse(halley, user);
    const id = await to(user);
    await sse(halley, user);
    return { id, got: await gets(stream, id, user) };
  }],
  ['a cursor that is none', 'not_known', async (user) => {
    const id = await to(user);
    const stream = await sse(halley, user, {}, 'nonsense');
    // Up to here nothing is owed: what is published before it is in the gap.
    await stream.gaps.next('the gap');
    return { id, got: await gets(stream, id, user) };
  }],
  ['a poll that was answered with what was missed', 'not_known', async (user) => {
    const cursor = await now(user);
    const id = await to(user);
    const { events } = await poll(halley, user, { cursor });
    await gone(user);
    return { id, got: events.some((event) => event.id === id) };
  }],
  ['a poll that waited', 'not_known', async (user) => {
    const waiting = poll(halley, user, { timeout: 20 });
    await here(user);
    const id = await to(user);
    const { events } = await waiting;
    await gone(user);
    return { id, got: events.some((event) => event.id === id) };
  }],
  ['a poll that waits, opened later without a cursor', 'no', async (user) => {
    const id = await to(user);
    poll(halley, user, { timeout: 20 }).catch(() => {});
    await here(user);
    return { id, got: false };
  }],
  ['followed before', 'yes', async (user) => {
    await follow(halley, [user, `room-${user}`]);
    const stream = await sse(halley, user);
    const { id } = await publish(halley, `room-${user}`, 1);
    return { id, got: await gets(stream, id, user) };
  }],
  ['followed later', 'no', async (user) => {
    const stream = await sse(halley, user);
    const { id } = await publish(halley, `room-${user}`, 1);
    await follow(halley, [user, `room-${user}`]);
    return { id, got: await gets(stream, id, user) };
  }],
  ['unfollowed since', 'yes', async (user) => {
    await follow(halley, [user, `room-${user}`]);
    const stream = await sse(halley, user);
    const { id } = await publish(halley, `room-${user}`, 1);
    await unfollow(halley, [user, `room-${user}`]);
    return { id, got: await gets(stream, id, user) };
  }],
  ['a stranger', 'no', async (user) => {
    const stream = await sse(halley, user);
    const { id } = await publish(halley, `room-${user}`, 1);
    return { id, got: await gets(stream, id, user) };
  }],
  ['subscribed from the beginning', 'yes', async (user) => {
    const stream = await sse(halley, { user, subject: `room-${user}` });
    const { id } = await publish(halley, `room-${user}`, 1);
    return { id, got: await gets(stream, id, user) };
  }],
  ['subscribed in time', 'yes', async (user) => {
    const stream = await ws(halley, user);
    await ask(stream, { op: 'subscribe', subject: `room-${user}` });
    const { id } = await publish(halley, `room-${user}`, 1);
    return { id, got: await gets(stream, id, user) };
  }],
  ['subscribed later', 'not_known', async (user) => {
    const stream = await ws(halley, user);
    const { id } = await publish(halley, `room-${user}`, 1);
    await ask(stream, { op: 'subscribe', subject: `room-${user}` });
    return { id, got: await gets(stream, id, user) };
  }],
  ['subscribed, and unsubscribed since', 'not_known', async (user) => {
    const stream = await ws(halley, user);
    await ask(stream, { op: 'subscribe', subject: `room-${user}` });
    const { id } = await publish(halley, `room-${user}`, 1);
    await ask(stream, { op: 'unsubscribe', subject: `room-${user}` });
    return { id, got: await gets(stream, id, user) };
  }],
  ['subscribed, and gone since', 'not_known', async (user) => {
    const stream = await sse(halley, { user, subject: `room-${user}` });
    const { id } = await publish(halley, `room-${user}`, 1);
    const got = await gets(stream, id, user);
    stream.close();
    await gone(user);
    return { id, got };
  }],
  ['a private event for a live session', 'yes', async (user) => {
    const stream = await sse(halley, user);
    const { id } = await publish(halley, undefined, 1, { to: [`${user}-x`, user, `${user}-y`] });
    return { id, got: await gets(stream, id, user) };
  }],
  ['a private event, and a session that began later', 'no', async (user) => {
    const { id } = await publish(halley, undefined, 1, { to: [`${user}-x`, user, `${user}-y`] });
    const stream = await sse(halley, user);
    return { id, got: await gets(stream, id, user) };
  }],
  ['a private event for others', 'no', async (user) => {
    const stream = await sse(halley, user);
    const { id } = await publish(halley, undefined, 1, { to: [`${user}-x`] });
    return { id, got: await gets(stream, id, user) };
  }],
  ['an event about several subjects', 'yes', async (user) => {
    const stream = await sse(halley, user);
    const { id } = await publish(halley, undefined, 1, { subjects: [`${user}-x`, user] });
    return { id, got: await gets(stream, id, user) };
  }],
  ['an event about several subjects, and a session that began later', 'no', async (user) => {
    const { id } = await publish(halley, undefined, 1, { subjects: [`${user}-x`, user] });
    const stream = await sse(halley, user);
    return { id, got: await gets(stream, id, user) };
  }],
  ['a celebrity, and a live session', 'yes', async (user) => {
    const stream = await sse(halley, user);
    const { id } = await publish(halley, await celebrity(user), 1);
    return { id, got: await gets(stream, id, user) };
  }],
  ['a celebrity, and a session that began later', 'no', async (user) => {
    const { id } = await publish(halley, await celebrity(user), 1);
    const stream = await sse(halley, user);
    return { id, got: await gets(stream, id, user) };
  }],
  ['deleted since, and followed what it was about', 'not_known', async (user) => {
    await follow(halley, [user, `room-${user}`]);
    const stream = await sse(halley, user);
    const { id } = await publish(halley, `room-${user}`, 1);
    const got = await gets(stream, id, user);
    await api(halley, 'DELETE', `/v1/users/${user}`);
    await gone(user);
    await sse(halley, user);
    return { id, got };
  }],
  ['what was about a user that was deleted since', 'hidden', async (user) => {
    const stream = await sse(halley, user);
    const id = await to(user);
    const got = await gets(stream, id, user);
    await api(halley, 'DELETE', `/v1/users/${user}`);
    await gone(user);
    return { id, got, isHidden: true };
  }],
];

for (const [name, answer, way] of WAYS) {
  test(`${name}: ${answer}`, async () => {
    const user = someone();
    const { isHidden, ...seen } = await way(user);
    if (isHidden) {
      const hidden = await api(halley, 'GET', `/v1/events/${seen.id}/trace?user=${user}`);
      assert.equal(hidden.status, 404, 'what was about a deleted user is hidden from everybody');
    } else await expectAnswer({ ...seen, user }, answer);
    closeStreams();
  });
}

test('away, and a stream without a cursor: no, and not the green of a yes', async () => {
  const user = someone();
  const published = await publish(halley, user, 'x');
  assert.equal(published.sessions, 0);
  await sse(halley, user);
  const trace = await expectAnswer({ id: published.id, user, got: false }, 'no');
  assert.equal(trace.sessions[0].began, 'after');
  assert.match(trace.verdict, /without a cursor from before it/);
  closeStreams();
});

test('a brain that was killed knows nothing of the sessions before it, and all of those since',
  async () => {
  const [there, away, left] = [someone(), someone(), someone()];
  const [stream, leaving] = [await sse(halley, there), await sse(halley, left)];
  const early = await to(there);
  const forLeft = await to(left);
  const forAway = await to(away);
  assert.equal(await gets(stream, early, there), true);
  assert.equal(await gets(leaving, forLeft, left), true);
  leaving.close();
  await gone(left);
  await halley.killBrain();
  await halley.start();
  await here(there);
  await expectAnswer({ id: early, user: there, got: true }, 'not_known');
  await expectAnswer({ id: forLeft, user: left, got: true }, 'not_known');
  await expectAnswer({ id: forAway, user: away, got: false }, 'not_known');
  await sse(halley, away);
  await expectAnswer({ id: forAway, user: away, got: false }, 'not_known');
  const late = await to(there);
  await expectAnswer({ id: late, user: there, got: await gets(stream, late, there) }, 'yes');
  const lateForAway = await to(left);
  await expectAnswer({ id: lateForAway, user: left, got: false }, 'no');
  closeStreams();
});

test('an edge that was killed took sessions with it of which nobody says that they ended',
  async () => {
  const [user, other] = [someone(), someone()];
  const stream = await sse(halley, user);
  const id = await to(user);
  assert.equal(await gets(stream, id, user), true);
  for (const pid of halley.edgePids()) kill(pid, 'SIGKILL');
  await stream.ended();
  await until('another edge', async () => {
    try {
      return await sessionsOf(halley, user) === 0 && (await sse(halley, other)).cursor;
    } catch { return false; }
  });
  await expectAnswer({ id, user, got: true }, 'not_known');
  closeStreams();
});

for (const policy of ['drop_oldest', 'latest_per_subject']) {
  test(`${policy}: what a slow client lost is remembered when it has caught up`, async () => {
    const slow = await start({ settings: { HALLEY_PUBLIC_SLOW_CONSUMER: policy,
      HALLEY_LIMITS_OUTBOX_BYTES_MAX: '262144', HALLEY_LIMITS_OUTBOX_MS_MAX: '120000' } });
    const raw = await Raw.open(slow.publicPort);
    raw.send('GET /v1/stream?user=u HTTP/1.1\r\nHost: h\r\nAccept: application/x-ndjson\r\n\r\n');
    await until('the session', async () => await sessionsOf(slow, 'u') === 1);
    raw.socket.pause();
    const ids = [];
    for (let n = 0; n < 400; n += 1) {
      ids.push((await publish(slow, 'u', `${n} ${'x'.repeat(30_000)}`)).id);
    }
    raw.socket.resume();
    await until('all that is left was read', async () =>
      (await traceOf(ids.at(-1), 'u', slow)).sessions[0].outbox_bytes === 0);
    const lost = ids.filter((id) => !raw.bytes.includes(id));
    assert.ok(lost.length > 0, 'the client lost some');
    await expectAnswer({ id: lost[0], user: 'u', got: false }, 'not_known', slow);
    raw.socket.destroy();
    await slow.stop();
  });
}
