// Kills and stalls with a PostgreSQL. `make faults-postgres` runs it; README.md says more.
//
//   KILLS=100        faults of each kind
//   FAULTS_SEED=1    without one, the time decides
//   FAULTS_ONLY=brain,stop    only these kinds

import { FAULTS } from './lib/postgres_faults.mjs';
import { runPostgres } from './lib/postgres_run.mjs';

const { KILLS = '100', FAULTS_SEED = `${Date.now() % 1_000_000}`, FAULTS_ONLY } = process.env;
const kinds = FAULTS_ONLY?.split(',') ?? Object.keys(FAULTS);
const [kills, seed] = [Number(KILLS), Number(FAULTS_SEED)];
if (!(kills > 0) || !Number.isSafeInteger(seed) || kinds.some((kind) => !(kind in FAULTS))) {
  console.error(`faults-postgres: KILLS and FAULTS_SEED are numbers, FAULTS_ONLY some of `
    + `${Object.keys(FAULTS)}`);
  process.exit(2);
}
console.log(`faults-postgres: seed ${seed}`);
const { ok, text } = await runPostgres({ seed, kills, kinds, say: (line) => console.log(line) });
console.log(text);
process.exit(ok ? 0 : 1);
