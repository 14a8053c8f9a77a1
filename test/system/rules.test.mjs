// Rules that surprise whoever meets them first: the guide docs/guides/rules.md says each, and each
// is so. A case is a sentence of the guide.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { before } from 'node:test';
import { api, http, publish } from '../lib/client.mjs';
import { start, test } from '../lib/halley.mjs';
import { sse } from '../lib/streams.mjs';
import { endAfter } from '../lib/world.mjs';

const GUIDE = readFileSync(new URL('../../docs/guides/rules.md', import.meta.url), 'utf8');
const NDJSON = { 'content-type': 'application/x-ndjson' };
let halley;
before(async () => {
  halley = await start();
});
endAfter(() => [halley]);

const past = (subject, query = '') =>
  api(halley, 'GET', `/v1/subjects/${encodeURIComponent(subject)}/events${query}`);
const poll = (query) => http('GET', `${halley.publicUrl}/v1/poll?user=ann&${query}`);
const idsIn = ({ json }) => json.events.map(({ id }) => id);

const rules = {
  '`Room/7` and `room/7` are two subjects.': async () => {
    await publish(halley, 'room/7', 1, { id: 'spelt' });
    assert.deepEqual(idsIn(await past('room/7')), ['spelt']);
    assert.deepEqual(idsIn(await past('Room/7')), []);
  },
  'In an address an id is one segment: its `/` is `%2F`.': async () => {
    assert.equal((await api(halley, 'GET', '/v1/subjects/a%2Fb/events')).status, 200);
    assert.equal((await api(halley, 'GET', '/v1/subjects/a/b/events')).status, 404);
  },
  'A path with a slash at its end is another path: 404.': async () => {
    assert.equal((await api(halley, 'GET', '/v1/subjects/a/events/')).status, 404);
  },
  'An id that Halley has never seen is no error: its lists are empty.': async () => {
    const { status, json } = await api(halley, 'GET', '/v1/users/zed/sessions');
    assert.deepEqual([status, json.sessions], [200, []]);
  },
  'A user\'s id is also a subject: an event about `ann` reaches ann without a follow.':
    async () => {
      const stream = await sse(halley, 'ann');
      await publish(halley, 'ann', 'hello', { id: 'to-ann' });
      assert.equal((await stream.event()).id, 'to-ann');
      stream.close();
    },
  'In follows, a number is the id that its digits spell.': async () => {
    const { json } = await api(halley, 'POST', '/v1/follows', '{"user":"bob","subject":123}\n',
      NDJSON);
    assert.equal(json.added, 1);
    const again = await api(halley, 'POST', '/v1/follows', '{"user":"bob","subject":"123"}\n',
      NDJSON);
    assert.equal(again.json.already, 1);
    assert.equal((await api(halley, 'POST', '/v1/events', { subject: 123, data: 1 })).status, 400);
  },
  'An unknown query parameter is ignored.': async () => {
    await publish(halley, 'many', 1);
    await publish(halley, 'many', 2);
    assert.equal((await past('many', '?limt=1')).json.events.length, 2);
    assert.equal((await past('many', '?limit=1')).json.events.length, 1);
    assert.equal((await poll('since=1&timeout=0')).json.error.code, 'unknown_cursor');
  },
  'An unknown member of an event is refused with 400.': async () => {
    const answer = await api(halley, 'POST', '/v1/events', { subject: 'a', data: 1, kep: true });
    assert.equal(answer.status, 400);
  },
  '`limit` beyond its bound is 400; a poll\'s `timeout` beyond its bound is the bound.':
    async () => {
      assert.equal((await past('a', '?limit=1000000')).json.error.code, 'bad_limit');
      const answer = poll('timeout=1000000');
      await publish(halley, 'ann', 'hello');
      assert.equal((await answer).status, 200);
    },
  '`last` needs subjects.': async () => {
    assert.equal((await poll('last=5&timeout=0')).json.error.code, 'bad_last');
  },
  'An id that was published before is not published again': async () => {
    await publish(halley, 'once', 'first', { id: 'same' });
    await publish(halley, 'once', 'second', { id: 'same' });
    assert.deepEqual((await past('once')).json.events.map(({ data }) => data), ['first']);
  },
  'A batch is 200 even if some of its lines are refused: each line has its own answer.':
    async () => {
      const lines = '{"subject":"x","data":1}\n{"subject":"","data":1}\n';
      const { status, body } = await api(halley, 'POST', '/v1/events', lines, NDJSON);
      const [taken, refused] = body.trim().split('\n').map((line) => JSON.parse(line));
      assert.equal(status, 200);
      assert.ok(taken.id);
      assert.equal(refused.error.code, 'bad_subject');
    },
  '`"data":null` is an event like any other.': async () => {
    await publish(halley, 'empty', null, { id: 'null' });
    assert.deepEqual(idsIn(await past('empty')), ['null']);
  },
  '`"sessions":0` isn\'t an error: no session was there.': async () => {
    assert.equal((await publish(halley, 'lonely', 1)).sessions, 0);
  },
  'Closing a user\'s sessions bans nobody.': async () => {
    const stream = await sse(halley, 'eve');
    assert.equal((await api(halley, 'DELETE', '/v1/users/eve/sessions')).json.closed, 1);
    await stream.closed;
    const back = await sse(halley, 'eve');
    back.close();
  },
  'A stream without a cursor begins now.': async () => {
    await publish(halley, 'gus', 'before', { id: 'before' });
    const stream = await sse(halley, 'gus');
    await publish(halley, 'gus', 'after', { id: 'after' });
    assert.equal((await stream.event()).id, 'after');
    stream.close();
  },
};

for (const [sentence, holds] of Object.entries(rules)) {
  test(sentence, async () => {
    assert.ok(GUIDE.includes(sentence), 'the guide says so');
    await holds();
  });
}

test('each rule of the guide has its case', () => {
  const rows = [...GUIDE.matchAll(/^\| ((?!rule |---)[^|]+) \|/gm)].map(([, rule]) => rule);
  const missing = rows.filter((row) =>
    !Object.keys(rules).some((sentence) => row.startsWith(sentence)));
  assert.deepEqual(missing, []);
});
