// A short run of the checker with a fixed seed: a bit of every profile, most kinds of faults.

import assert from 'node:assert/strict';
import test from 'node:test';
import { PROFILES } from './lib/profiles.mjs';
import { runAll } from './lib/run.mjs';

const SECONDS = { all: 12, groups: 12 };
const SECONDS_OTHERS = 4;

for (const [index, profile] of PROFILES.entries()) {
  test(`nothing is lost: ${profile.name}`, async () => {
    const lines = [];
    const seconds = SECONDS[profile.name] ?? SECONDS_OTHERS;
    const { ok, text, results } = await runAll({ seed: 2008 + index, plan: [{ profile, seconds }],
      say: (line) => lines.push(line) });
    if (results.length === 0) {
      console.log(`not run: ${profile.name}`);
      return;
    }
    assert.ok(ok, `${lines.join('\n')}\n${text}`);
    assert.ok(results[0].verdict.tally.checked > 100, 'it checked something');
  });
}
