// protocol/http.md 26: the latest value of a subject is kept beyond the retention.

import assert from 'node:assert/strict';
import { after, before } from 'node:test';
import { api, publish } from '../lib/client.mjs';
import { assertError } from '../lib/expect.mjs';
import { start, test } from '../lib/halley.mjs';
import { metric } from '../lib/metrics.mjs';
import { closeStreams, ndjson, poll, sse, ws } from '../lib/streams.mjs';
import { until } from '../lib/wait.mjs';

let halley;
before(async () => {
  halley = await start({ settings: { HALLEY_HISTORY_BYTES: '4MB',
    HALLEY_LIMITS_KEPT_BYTES_MAX: '300000' } });
});
after(async () => {
  closeStreams();
  await halley?.stop();
});

const data = (events) => events.map((event) => event.data);

async function keep(subject, value, more = {}) {
  const answer = await api(halley, 'POST', '/v1/events',
    { subject, data: value, keep: true, ...more });
  assert.equal(answer.status, 200, answer.body);
  return answer.json.id;
}

async function past(subject) {
  const path = `/v1/subjects/${encodeURIComponent(subject)}/events`;
  return (await api(halley, 'GET', path)).json;
}

/** Publishes until retention has taken an event. */
async function outlive(id) {
  const filler = 'x'.repeat(60_000);
  await until('retention has taken it', async () => {
    for (let n = 0; n < 20; n += 1) await publish(halley, 'noise', filler);
    return (await api(halley, 'GET', `/v1/events/${id}/trace?user=u`)).status === 404;
  }, 60_000);
}

test('26.1, 26.2 it is on the page of the past and first with last=, beyond the retention',
  async () => {
  const live = await sse(halley, { user: 'u', subjects: 'score' });
  const id = await keep('score', { home: 1 });
  assert.deepEqual((await live.event()).data, { home: 1 }, 'an event as any other');
  live.close();
  await outlive(id);
  const page = await past('score');
  assert.deepEqual([page.events, page.kept.id, page.kept.data], [[], id, { home: 1 }]);
  await publish(halley, 'score', 'not kept');
  for (const opening of [sse, ndjson, ws]) {
    const stream = await opening(halley, { user: 'u', subjects: 'score', last: 5 });
    assert.deepEqual(data(await stream.events.take(2)), [{ home: 1 }, 'not kept']);
    stream.close();
  }
  const polled = await poll(halley, { user: 'u', subjects: 'score', last: 5, timeout: 0 });
  assert.deepEqual(data(polled.events), [{ home: 1 }, 'not kept']);
  const socket = await ws(halley, 'u');
  socket.socket.send(JSON.stringify({ op: 'subscribe', subject: 'score', last: 1, ref: 1 }));
  let answer = {};
  while (answer.ok === undefined) answer = await socket.comments.next('the answer');
  assert.deepEqual([data(answer.ok.events), answer.ok.kept.data], [['not kept'], { home: 1 }]);
  socket.close();
});

test('26.3 the newest counts, and null ends it', async () => {
  await keep('lamp', 'on');
  await keep('lamp', 'off');
  assert.equal((await past('lamp')).kept.data, 'off');
  const live = await sse(halley, { user: 'u', subjects: 'lamp' });
  await keep('lamp', null);
  assert.equal((await live.event()).data, null, 'who is there hears of it');
  live.close();
  assert.equal((await past('lamp')).kept, undefined);
});

test('26.4 a brain that is killed again and again has it', async () => {
  const id = await keep('flag', 'green');
  for (let n = 0; n < 3; n += 1) {
    await halley.killBrain();
    await halley.start();
    assert.equal((await past('flag')).kept.data, 'green');
    await outlive(n === 0 ? id : await keep(`other${n}`, n));
    assert.equal((await past('flag')).kept.data, 'green');
  }
  assert.equal((await past('other1')).kept.data, 1);
});

test('26.5 bounded, and what is refused', async () => {
  const large = 'x'.repeat(60_000);
  const answers = [];
  for (let n = 0; n < 8; n += 1) {
    answers.push(await api(halley, 'POST', '/v1/events',
      { subject: `large${n}`, data: large, keep: true }));
  }
  const refused = answers.find(({ status }) => status !== 200);
  const error = assertError(refused, 507);
  assert.equal(error.code, 'too_many_kept');
  assert.match(error.message, /limits\.kept_bytes_max/);
  assert.ok(await metric(halley, 'halley_events_refused_total') > 0);
  assert.ok(await metric(halley, 'halley_kept_bytes') <= 300_000);
  for (const [body, code] of [[{ keep: 1 }, 'bad_keep'], [{ keep: 'yes' }, 'bad_keep']]) {
    const answer = await api(halley, 'POST', '/v1/events', { subject: 's', data: 1, ...body });
    assert.equal(assertError(answer, 400).code, code);
  }
  for (const whom of [{ to: ['u'] }, { subjects: ['a', 'b'] }]) {
    const answer = await api(halley, 'POST', '/v1/events', { ...whom, data: 1, keep: true });
    assert.equal(assertError(answer, 400).code, 'bad_keep');
  }
});

test('26.6 a user that is deleted takes it along', async () => {
  await keep('ann', 'here');
  assert.equal((await past('ann')).kept.data, 'here');
  assert.equal((await api(halley, 'DELETE', '/v1/users/ann')).status, 200);
  assert.equal((await past('ann')).kept, undefined);
});
