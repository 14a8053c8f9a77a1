// The Python client's random operations (clients/python/tests/network_story.py) by each transport,
// at the real release, over a network of 0, 50 and 150 ms each way that resets connections. No
// event is lost, shown twice or out of order, and no call hangs, however many are cancelled.
//
//   OPERATIONS=10000 CLIENTS=20 SEED=1 SILENCES=5 node test/system/python-network.test.mjs
//
// is the long run, for each latency, where connections also fall silent without an end; without
// these it is a short one.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { start, test } from '../lib/halley.mjs';
import { network } from '../lib/network.mjs';

const path = (name) => fileURLToPath(new URL(`../../${name}`, import.meta.url));
const PYTHON = process.env.HALLEY_PYTHON ?? path('.tools/python/bin/python');
const STORY = path('clients/python/tests/network_story.py');
const seed = process.env.SEED ?? String(Date.now() % 1_000_000);
/** A connection is reset, or falls silent, after so many seconds on average; 0 is never. */
const FATES = { resetsS: 2, silencesS: Number(process.env.SILENCES ?? 0) };

async function run(halley, latencyMs) {
  const between = await network({ to: halley.publicPort, seed: Number(seed), latencyMs,
    jitterMs: latencyMs / 2 || 10, ...FATES });
  try {
    const told = await promisify(execFile)(PYTHON, [STORY, between.url, halley.apiUrl],
      { env: { ...process.env, SEED: seed } }).catch((error) => error);
    console.log(`${latencyMs} ms: ${told.stdout || told}`);
    assert.equal(told.code, undefined, `seed ${seed}: ${told.stdout}${told.stderr}`);
    return JSON.parse(told.stdout);
  } finally {
    between.close();
  }
}

test('random operations behind a network that is slow and fails', async () => {
  const halley = await start({ settings: { HALLEY_STREAM_RETRY: '100ms',
    HALLEY_STREAM_HEARTBEAT: '1s' } });
  try {
    const seen = [];
    for (const latencyMs of [0, 50, 150]) seen.push(await run(halley, latencyMs));
    for (const what of ['reconnecting', 'cancelled', 'owed', 'shown']) {
      assert.ok(seen.some((one) => one[what] > 0), `some: ${what}`);
    }
  } finally {
    await halley.stop();
  }
});
