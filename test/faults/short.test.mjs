// A short run of the checker with a fixed seed: a bit of every profile, most kinds of faults.

import assert from 'node:assert/strict';
import test from 'node:test';
import { damageTable, runDamage } from './lib/damage_run.mjs';
import { PROFILES } from './lib/profiles.mjs';
import { runAll } from './lib/run.mjs';

const SECONDS = { all: 12, groups: 12, store: 2, full: 4, power: 4, 'power-young': 1 };
const SECONDS_OTHERS = 4;
const DAMAGE_MS = 10_000;

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

test('a file that is harmed at rest is told, or does no harm', async () => {
  const lines = [];
  const results = await runDamage({ seed: 2008, cases: 1_000, msMax: DAMAGE_MS,
    say: (line) => lines.push(line) });
  assert.ok(results.length > 0, 'it played a case');
  assert.ok(results.every(({ kind }) => kind !== 'WRONG'),
    `${lines.join('\n')}\n${damageTable(results)}`);
});
