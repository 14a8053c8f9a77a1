// The checker. `make faults` runs it; README.md says how to read what it prints.
//
//   FAULTS_SECONDS=600      for how long
//   FAULTS_SEED=1           the run's seed; without one, the time decides
//   FAULTS_PROFILE=all      rounds of this profile only (lib/profiles.mjs)
//   FAULTS_ROUND_SEED=7     one round with this seed, the one that a failure named
//   FAULTS_ONLY=kill-brain,drop-client     only these faults
//   FAULTS_ROUND_SECONDS=40 how long a round injects faults

import { PROFILES } from './lib/profiles.mjs';
import { runAll } from './lib/run.mjs';

const { FAULTS_SECONDS = '600', FAULTS_ROUND_SECONDS = '40', FAULTS_SEED, FAULTS_ROUND_SEED,
  FAULTS_PROFILE, FAULTS_ONLY } = process.env;

function number(name, text, low) {
  const value = Number(text);
  if (Number.isSafeInteger(value) && value >= low) return value;
  console.error(`faults: ${name} must be a whole number from ${low}, not ${text}`);
  return process.exit(2);
}

const seconds = number('FAULTS_SECONDS', FAULTS_SECONDS, 1);
const roundSeconds = number('FAULTS_ROUND_SECONDS', FAULTS_ROUND_SECONDS, 1);
const seed = number('FAULTS_SEED', FAULTS_SEED ?? Date.now() % 1_000_000, 0);
const profile = PROFILES.find(({ name }) => name === FAULTS_PROFILE);
if (FAULTS_PROFILE !== undefined && !profile) {
  console.error(`faults: FAULTS_PROFILE must be one of ${PROFILES.map(({ name }) => name)}`);
  process.exit(2);
}

/** A plan where one profile or one round is asked for. */
function plan() {
  if (FAULTS_ROUND_SEED !== undefined) {
    const roundSeed = number('FAULTS_ROUND_SEED', FAULTS_ROUND_SEED, 1);
    return [{ profile: profile ?? PROFILES[0], seconds: roundSeconds, seed: roundSeed }];
  }
  if (!profile) return undefined;
  const rounds = Math.ceil(seconds / roundSeconds);
  return Array.from({ length: rounds }, () =>
    ({ profile, seconds: Math.min(seconds, roundSeconds) }));
}

console.log(`faults: seed ${seed}`);
const { ok, text } = await runAll({ seed, seconds, roundSeconds, plan: plan(),
  only: FAULTS_ONLY?.split(',') });
console.log(`\n${text}`);
process.exit(ok ? 0 : 1);
