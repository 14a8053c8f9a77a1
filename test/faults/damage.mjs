// Damage at rest: every file of a data directory, harmed in every way, and what a start makes of
// it.
//
//   FAULTS_DAMAGE_CASES=100   how many cases; the harms come again, elsewhere in the files
//   FAULTS_SEED=1             the seed; without one, the time decides
//   FAULTS_DAMAGE_ONLY=store  only files with this in their path

import { damageTable, runDamage } from './lib/damage_run.mjs';

const { FAULTS_DAMAGE_CASES = '100', FAULTS_SEED, FAULTS_DAMAGE_ONLY = '' } = process.env;
const seed = Number(FAULTS_SEED ?? Date.now() % 1_000_000);
const cases = Number(FAULTS_DAMAGE_CASES);
if (![seed, cases].every((value) => Number.isSafeInteger(value) && value >= 0)) {
  console.error('damage: FAULTS_SEED and FAULTS_DAMAGE_CASES must be whole numbers');
  process.exit(2);
}

// What stands in the temporary folder is removed at the end of the process.
for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => process.exit(130));

console.log(`damage: seed ${seed}`);
const results = await runDamage({ seed, cases, only: FAULTS_DAMAGE_ONLY, say: console.log });
console.log(damageTable(results));
const wrong = results.filter(({ kind }) => kind === 'WRONG').length;
console.log(`damage: seed ${seed}, ${results.length} cases: ${wrong} wrong`);
process.exit(wrong === 0 && results.length > 0 ? 0 : 1);
