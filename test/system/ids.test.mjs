// design.md, "Words": an id is 1..255 bytes of UTF-8, for users and subjects alike.

import assert from 'node:assert/strict';
import { after, before } from 'node:test';
import { api, curl, follow, publish, sessionsOf, unfollow } from '../lib/client.mjs';
import { assertError, assertEvent } from '../lib/expect.mjs';
import { start, test } from '../lib/halley.mjs';
import { closeStreams, sse, ws } from '../lib/streams.mjs';
import { until } from '../lib/wait.mjs';

let halley;
before(async () => { halley = await start(); });
after(async () => {
  closeStreams();
  await halley?.stop();
});

const ids = {
  'a number': '123', 'one byte': 'x', unicode: 'Žofie🐎', spaces: ' two  words ',
  slashes: 'a/b//c', 'dots like a path': '..', 'a percent sign': '100%25', plus: 'a+b',
  'query characters': 'a&b=c?d#e', quotes: '"\'\\', 'a comma and a colon': 'a,b:c',
  '255 bytes': 'x'.repeat(255), '255 bytes of Unicode': 'ž'.repeat(127) + 'x',
  'a tilde and the first behind the controls': '~\u00a0', markup: '<script>alert(1)</script>',
};

for (const [what, id] of Object.entries(ids)) {
  test(`an id with ${what}: stream, follow, publish, presence, pages`, async () => {
    const follower = `${what} follower`;
    const path = encodeURIComponent(id);
    await follow(halley, [follower, id]);
    const streams = [await sse(halley, id), await sse(halley, follower), await ws(halley, id)];
    await until('two sessions', async () => await sessionsOf(halley, id) === 2);
    assert.equal((await publish(halley, id, what)).sessions, 3);
    for (const stream of streams) assertEvent(await stream.event(), id, what);
    const presence = (await api(halley, 'GET', `/v1/users/${path}`)).json;
    assert.equal(presence.user, id);
    const page = await api(halley, 'GET', `/v1/subjects/${path}/followers`);
    assert.ok(JSON.stringify(page.json).includes(JSON.stringify(follower)), page.body);
    const following = await api(halley, 'GET',
      `/v1/users/${encodeURIComponent(follower)}/following`);
    assert.ok(following.body.includes(JSON.stringify(id).slice(1, -1))
      || JSON.stringify(following.json).includes(JSON.stringify(id)), following.body);
    assert.equal((await unfollow(halley, [follower, id])).removed, 1);
    for (const stream of streams) stream.close();
  });
}

// Ids travel in edge lists, logs and paths, where a newline would make one thing look like two.
for (const [what, id] of [['a newline', 'a\nb'], ['a NUL', 'a\0b'], ['a delete', 'a\x7fb']]) {
  test(`an id with a control character (${what}) is refused by name everywhere`, async () => {
    const user = encodeURIComponent(id);
    const answers = [
      await curl([`${halley.publicUrl}/v1/stream?user=${user}`]),
      await api(halley, 'POST', '/v1/events', { subject: id, data: 1 }),
      await api(halley, 'GET', `/v1/users/${user}`),
    ];
    for (const answer of answers) assertError(answer, 400);
    const body = `${JSON.stringify({ user: id, subject: 'x' })}\n`;
    const follows = await api(halley, 'POST', '/v1/follows', body,
      { 'content-type': 'application/x-ndjson' });
    assert.equal(follows.json.added, 0);
    assert.equal(follows.json.errors.length, 1);
  });
}

test('ids that differ in case or by a space are different', async () => {
  const stream = await sse(halley, 'Case');
  await publish(halley, 'case', 1);
  await publish(halley, 'Case ', 2);
  await publish(halley, 'Case', 3);
  assertEvent(await stream.event(), 'Case', 3);
  await stream.quiet();
  stream.close();
});
