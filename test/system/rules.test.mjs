// Rules that surprise whoever meets them first: the guide docs/guides/rules.md says each, and each
// is so. A case is a sentence of the guide.

import assert from 'node:assert/strict';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { before } from 'node:test';
import { api, http, publish } from '../lib/client.mjs';
import { kill, prepare, start, test } from '../lib/halley.mjs';
import { sse } from '../lib/streams.mjs';
import { until } from '../lib/wait.mjs';
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

/** What `./halley config` says with this file and this environment, in a folder of its own. */
async function config(conf, settings = {}, { folder = '.' } = {}) {
  const other = await prepare({ settings });
  try {
    mkdirSync(join(other.folder, folder), { recursive: true });
    writeFileSync(join(other.folder, folder, 'halley.conf'), conf);
    const { code, stdout, stderr } = await other.command('config');
    return { code, stdout, stderr: stderr.replaceAll(other.folder, '/start') };
  } finally {
    other.remove();
  }
}

const rules = {
  '`Room/7` and `room/7` are two subjects.': async () => {
    await publish(halley, 'room/7', 1, { id: 'spelt' });
    assert.deepEqual(idsIn(await past('room/7')), ['spelt']);
    assert.deepEqual(idsIn(await past('Room/7')), []);
  },
  'In an address an id is one segment: its `/` is `%2F`.': async () => {
    assert.equal((await api(halley, 'GET', '/v1/subjects/a%2Fb/events')).status, 200);
    const spread = await api(halley, 'GET', '/v1/subjects/a/b/events');
    assert.equal(spread.status, 404);
    assert.match(spread.json.error.message, /if an id in it has a \/, write that as %2F/);
  },
  'Behind a proxy that decodes `%2F`, an id with a `/` stands in the query.': async () => {
    const me = `${halley.publicUrl}/v1/me`;
    assert.equal((await http('PUT', `${me}/follows?user=eve&subject=room%2F9`)).json.added, 1);
    assert.equal((await http('PUT', `${me}/follows/room%2F9?user=eve`)).json.already, 1);
    for (const path of ['follows/room/9', 'presence/room/9', 'subjects/room/9/events']) {
      assert.equal((await http('GET', `${me}/${path}?user=eve`)).status, 404);
    }
    for (const path of ['presence', 'subjects/events', 'subjects/presence']) {
      assert.equal((await http('GET', `${me}/${path}?user=eve&subject=room%2F9`)).status, 200);
    }
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
  'An unknown query parameter is refused at the API listener.': async () => {
    await publish(halley, 'many', 1);
    await publish(halley, 'many', 2);
    const { status, json } = await past('many', '?limt=1');
    assert.deepEqual([status, json.error.code], [400, 'unknown_parameter']);
    assert.match(json.error.message, /did you mean limit\?/);
    assert.equal((await past('many', '?limit=1')).json.events.length, 1);
  },
  'At the public listener it is ignored, unless it is almost a known one.': async () => {
    assert.equal((await poll('timeout=0&utm_source=mail&_=17')).status, 200);
    for (const [query, code, meant] of [
      ['subjcts=room/7', 'unknown_parameter', 'subjects='],
      ['tokne=x', 'unknown_parameter', 'token='],
      ['curser=x', 'unknown_cursor', 'cursor='], ['since=1', 'unknown_cursor', 'cursor='],
    ]) {
      const { status, json } = await poll(`timeout=0&${query}`);
      assert.deepEqual([status, json.error.code], [400, code]);
      assert.ok(json.error.message.includes(meant), json.error.message);
    }
    const mine = await http('GET', `${halley.publicUrl}/v1/me/follows?user=ann&limt=1`);
    assert.equal(mine.json.error.code, 'unknown_parameter');
  },
  'An unknown member of an event is refused with 400.': async () => {
    const answer = await api(halley, 'POST', '/v1/events', { subject: 'a', data: 1, kep: true });
    assert.equal(answer.status, 400);
  },
  '`limit` beyond its bound is 400; a poll\'s `timeout` beyond its bound is the bound.':
    async () => {
      assert.equal((await past('a', '?limit=1000000')).json.error.code, 'bad_limit');
      // With a cursor: the event may be there before the poll is.
      const { json: { cursor } } = await poll('timeout=0');
      const answer = poll(`timeout=1000000&cursor=${cursor}`);
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
  'Closing a user\'s sessions doesn\'t ban the user.': async () => {
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

Object.assign(rules, {
  'A relative path begins at the folder in which Halley is started': async () => {
    const { stderr } = await config('auth.mode = jwt\nauth.keys = keys.json\n',
      { HALLEY_CONF: 'etc/halley.conf' }, { folder: 'etc' });
    assert.match(stderr, /^halley: auth\.keys.*\/start\/keys\.json/);
  },
  'The environment goes before the file, also with an empty value.': async () => {
    const conf = 'drain.time = 5s\n';
    assert.match((await config(conf)).stdout, /^drain\.time = 5s$/m);
    assert.match((await config(conf, { HALLEY_DRAIN_TIME: '6s' })).stdout, /^drain\.time = 6s$/m);
    assert.match((await config(conf, { HALLEY_DRAIN_TIME: '' })).stderr, /drain\.time: must be/);
  },
  'A `#` begins a comment only after a space; within a value it is refused.': async () => {
    assert.match((await config('auth.issuer = a # b\n')).stdout, /^auth\.issuer = a$/m);
    assert.match((await config('auth.issuer = a#b\n')).stderr, /line 1: the # would end the value/);
    const { stdout } = await config('', { HALLEY_AUTH_ISSUER: 'a#b' });
    assert.match(stdout, /^auth\.issuer = a#b$/m);
  },
  'A value stands without quotes, in the file and in the environment.': async () => {
    const line = 'halley: auth.issuer: has quotes around its value; leave them out\n';
    assert.equal((await config('auth.issuer = "a"\n')).stderr, line);
    assert.equal((await config('', { HALLEY_AUTH_ISSUER: "'a'" })).stderr, line);
  },
  'A duration has a unit, a limit has none.': async () => {
    assert.match((await config('drain.time = 5000\n')).stderr, /a duration such as/);
    assert.match((await config('limits.publish_ms_max = 5s\n')).stderr, /milliseconds, without/);
    assert.equal((await config('drain.time = 5s\nlimits.publish_ms_max = 5000\n')).code, 0);
  },
  'An unknown key refuses the start, and so does an unknown `HALLEY_` variable.': async () => {
    assert.match((await config('drain.tme = 5s\n')).stderr, /did you mean drain\.time\?/);
    assert.match((await config('', { HALLEY_WORKERS: '2' })).stderr, /mean HALLEY_EDGE_WORKERS\?/);
    const { code } = await config('', { HALLEY_SERVICE_HOST: '10.0.0.1',
      HALLEY_PORT: 'tcp://10.0.0.1:8080', HALLEY_PORT_8080_TCP_PROTO: 'tcp' });
    assert.equal(code, 0);
  },
  'SIGHUP takes over `log.level` alone.': async () => {
    const other = await prepare({ conf: 'log.level = info\ndrain.time = 5s\n' });
    try {
      await other.start();
      writeFileSync(join(other.folder, 'halley.conf'), 'log.level = notice\ndrain.time = 6s\n');
      kill(other.launcherPid, 'SIGHUP');
      const said = /in force is log\.level; at the next start take effect drain\.time/;
      await until('the log says so', () => said.test(other.log));
    } finally {
      await other.stop();
    }
  },
});

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
