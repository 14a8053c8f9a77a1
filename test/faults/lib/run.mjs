// Rounds, one after the other, for as long as asked. Each has a seed of its own, made from the one
// of the run; a failure says it, and `FAULTS_ROUND_SEED` plays that round alone.

import { mkdirSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PROFILES } from './profiles.mjs';
import { Random } from './random.mjs';
import { runRound } from './round.mjs';
import { missing } from './server.mjs';
import { table } from './table.mjs';
import { timeline } from './timeline.mjs';

const SHOWN_MAX = 5;
const LOG_LINES = 30;

const clock = () => new Date().toISOString().slice(11, 19);

function progress(profile, say) {
  let [faults, told] = [0, 0];
  return ({ history, clients, wrongs }) => {
    for (const text of wrongs.slice(told)) say(`${clock()} ${profile.name} wrong: ${text}`);
    told = wrongs.length;
    const now = history.faults.length;
    const names = [...new Set(history.faults.slice(faults).map(({ name }) => name))];
    faults = now;
    const connected = clients.filter((client) => client.isConnected).length;
    say(`${clock()} ${profile.name.padEnd(11)} ${String(history.events.size).padStart(6)} events, `
      + `${String(connected).padStart(3)} connected, ${String(now).padStart(4)} faults: `
      + names.join(' '));
  };
}

/** The history for other tools: maps become lists of pairs. */
function asJson(history) {
  return JSON.stringify(history, (_, value) => (
    value instanceof Map || value instanceof Set ? [...value] : value));
}

/** Says what failed, and writes all of it to a folder. */
function report(result, say) {
  const { verdict, wrongs, history, trace, log, profile, seed } = result;
  const folder = join(tmpdir(), `halley-faults-${seed}-${profile.name}`);
  mkdirSync(folder, { recursive: true });
  say(`\nFAILED: round ${profile.name}, seed ${seed}; again: `
    + `FAULTS_PROFILE=${profile.name} FAULTS_ROUND_SEED=${seed} make faults`);
  for (const text of wrongs) say(`  wrong: ${text}`);
  for (const { kind, user = '', id = '', text } of verdict.violations.slice(0, SHOWN_MAX)) {
    say(`  ${kind}: ${user} ${id}: ${text}`);
  }
  if (verdict.violationCount > SHOWN_MAX) say(`  ... ${verdict.violationCount} in all`);
  const [first] = verdict.violations;
  if (first) {
    say(`the first one's timeline (tick, time UTC, what):\n${timeline(history, first).join('\n')}`);
    if (trace) say(`the server's trace: ${trace}`);
  }
  say(`the log's tail:\n${log.trimEnd().split('\n').slice(-LOG_LINES).join('\n')}`);
  const stories = verdict.violations.map((violation) =>
    `${JSON.stringify(violation)}\n${timeline(history, violation).join('\n')}\n`);
  writeFileSync(join(folder, 'violations.txt'), stories.slice(0, 50).join('\n'));
  writeFileSync(join(folder, 'halley.log'), log);
  if (history) writeFileSync(join(folder, 'history.json'), asJson(history));
  say(`all of it: ${folder}`);
}

/** A round and what it was; a Halley that doesn't start fails it too. */
async function play(profile, seed, seconds, { only, say }) {
  const random = new Random(seed);
  try {
    const result = await runRound({ profile, random, seconds, only, mark: seed.toString(36),
      tick: progress(profile, say) });
    return { profile, seed, ...result };
  } catch (error) {
    return { profile, seed, wrongs: [error.stack], log: '', history: undefined,
      verdict: { ok: false, violations: [], violationCount: 0, tally: {} } };
  }
}

const isGood = ({ verdict, wrongs }) => verdict.ok && wrongs.length === 0;

/**
 * Runs rounds until `seconds` are over; gives `{ok, text, results}`.
 * `plan` is `[{profile, seconds, seed?}]`, or undefined for rounds drawn from the seed.
 */
export async function runAll({ seed, seconds, roundSeconds, plan, only, say = console.log }) {
  const random = new Random(seed);
  const endsAt = Date.now() + seconds * 1_000;
  const notRun = PROFILES.map((profile) => [profile, missing(profile)]).filter(([, why]) => why);
  const possible = PROFILES.filter((profile) => !missing(profile));
  const left = plan && [...plan];
  const results = [];
  while (left ? left.length > 0 : Date.now() < endsAt) {
    const step = left ? left.shift() : { profile: random.weighted(possible),
      seconds: Math.max(5, Math.min(roundSeconds, (endsAt - Date.now()) / 1_000)) };
    step.seconds = Math.min(step.seconds, step.profile.secondsMax ?? Infinity);
    if (missing(step.profile)) continue;
    const result = await play(step.profile, step.seed ?? random.int(1, 0x7fffffff), step.seconds,
      { only, say });
    if (!isGood(result)) report(result, say);
    results.push(result.history ? { ...result, history: undefined } : result);
  }
  const ok = results.length > 0 && results.every(isGood);
  const text = `${table(results, notRun.map(([{ name }, why]) => `${name}: ${why}`))}\n`
    + `faults: seed ${seed}, ${results.length} rounds: ${ok ? 'nothing lost' : 'FAILED'}`;
  return { ok, text, results };
}
