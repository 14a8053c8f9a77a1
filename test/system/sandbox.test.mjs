// docs/internals/sandbox.md, by the real release: what the edge has given up, and that nothing of
// the brain's is in it to be stolen.

import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { after } from 'node:test';
import { publish } from '../lib/client.mjs';
import { assertEvent } from '../lib/expect.mjs';
import { prepare, test } from '../lib/halley.mjs';
import { closeStreams, sse } from '../lib/streams.mjs';
import { bearer, makeKey, mint } from '../lib/token.mjs';

after(closeStreams);

const SECRET = 'a secret of thirty-two bytes, or more';

/** That field of `/proc/<pid>/task/<tid>/status` of all threads, each value once. */
function ofThreads(pid, field) {
  const values = readdirSync(`/proc/${pid}/task`).map((task) => {
    const status = readFileSync(`/proc/${pid}/task/${task}/status`, 'utf8');
    return status.match(new RegExp(`^${field}:\\s*(.*)$`, 'm'))[1];
  });
  return [...new Set(values)];
}

async function run(settings, body) {
  const halley = await prepare();
  Object.assign(halley.settings, settings);
  await halley.start();
  try {
    await body(halley);
  } finally {
    await halley.stop();
  }
}

test('every thread of the edge is in the sandbox, and events arrive', async () => {
  await run({}, async (halley) => {
    assert.deepEqual(ofThreads(halley.edgePid(), 'NoNewPrivs'), ['1']);
    assert.deepEqual(ofThreads(halley.edgePid(), 'Seccomp'), ['2']);
    const stream = await sse(halley, 'ann');
    await publish(halley, 'ann', 'hello');
    assertEvent(await stream.events.next('the event'), 'ann', 'hello');
  });
});

test('edge.sandbox = off leaves it out', async () => {
  await run({ HALLEY_EDGE_SANDBOX: 'off' }, async (halley) => {
    assert.deepEqual(ofThreads(halley.edgePid(), 'Seccomp'), ['0']);
  });
});

test('the edge has no secret of the cluster in its environment or command line', async () => {
  const settings = {
    HALLEY_AUTH_MODE: 'jwt', HALLEY_AUTH_HMAC_SECRET: SECRET, SOMEBODYS_PASSWORD: 'xyzzy-plugh',
  };
  await run(settings, async (halley) => {
    const pid = halley.edgePid();
    const seen = ['environ', 'cmdline'].map((file) => readFileSync(`/proc/${pid}/${file}`, 'utf8'));
    for (const text of seen) {
      assert.doesNotMatch(text, /[sS]ecret|[cC]ookie|xyzzy|HALLEY_/);
    }
    // It has the one that tokens are signed with, by the link, as it must.
    const key = makeKey('HS256', undefined, SECRET);
    const token = mint(key, { sub: 'ann' });
    const stream = await sse(halley, 'ann', bearer(token));
    assert.equal(stream.status, 200);
  });
});
