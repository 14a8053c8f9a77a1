// The result of all rounds as a table for people.

const sorted = (counts) => Object.entries(counts).sort(([, a], [, b]) => b - a);

function addAll(sum, tally) {
  for (const [key, value] of Object.entries(tally)) {
    if (typeof value === 'number') sum[key] = (sum[key] ?? 0) + value;
    else addAll(sum[key] ??= {}, value);
  }
}

/** The sum of what rounds gave. */
export function sumUp(results) {
  const sum = { kinds: {} };
  for (const { verdict, wrongs } of results) {
    addAll(sum, verdict.tally);
    addAll(sum.kinds, verdict.kinds ?? {});
    if (wrongs.length > 0) sum.kinds.wrong = (sum.kinds.wrong ?? 0) + wrongs.length;
  }
  return sum;
}

const KINDS = ['follow lost', 'follow invented', 'listed twice', 'lost', 'reordered', 'doubled',
  'uninvited', 'stray', 'garbled', 'dropped', 'unjust gap', 'unacknowledged', 'past lost',
  'past doubled', 'past reordered', 'past garbled', 'past gap', 'past too old',
  'past too many', 'kept lost',
  'shown again', 'outlived', 'let in', 'stayed', 'turned away', 'wrong'];

const NAMES = { afterResume: 'after a resume', afterRetry: 'publish tried again',
  early: 'from before the first welcome', answered: 'in an answer to a subscribe and live' };

function* rows(sum, notRun) {
  yield ['events published', sum.published ?? 0];
  yield ['events acknowledged', sum.acked ?? 0];
  yield ['connections', sum.connections ?? 0];
  yield ['  that ended with their tokens', sum.expired ?? 0];
  yield ['asked who may connect', sum.admissions ?? 0];
  yield ['  turned away', sum.turnedAway ?? 0];
  yield ['  turned out after a restart', sum.turnedOut ?? 0];
  yield ['deliveries received', sum.received ?? 0];
  yield ['deliveries that were owed, checked', sum.checked ?? 0];
  yield ['newest of a subject, by a WebSocket\'s operation', sum.answers ?? 0];
  yield ['undecided (client forgot its cursor)', sum.undecided ?? 0];
  yield ['lists held against the model', sum.lists ?? 0];
  yield ['  names in them', sum.names ?? 0];
  yield ['users deleted', sum.deaths ?? 0];
  yield ['walks through the past', sum.walks ?? 0];
  yield ['  events in them', sum.walked ?? 0];
  for (const [cause, count] of sorted(sum.duplicates ?? {})) {
    yield [`duplicates: ${NAMES[cause]}`, count];
  }
  for (const [reason, count] of sorted(sum.gaps ?? {})) yield [`gap events: ${reason}`, count];
  for (const [why, count] of sorted(sum.excused ?? {})) yield [`missing, ${why}`, count];
  yield* Object.entries(sum.told ?? {});
  const faults = sum.faults ?? {};
  yield ['faults', Object.values(faults).reduce((all, count) => all + count, 0)];
  for (const [name, count] of sorted(faults)) yield [`  ${name}`, count];
  const cuts = Object.entries(faults).filter(([name]) => name.startsWith('power-'));
  yield ['power cuts among them', cuts.reduce((all, [, count]) => all + count, 0)];
  for (const why of notRun) yield [`  not run: ${why}`, ''];
  for (const kind of KINDS) yield [kind, sum.kinds[kind] ?? 0];
}

export function table(results, notRun) {
  const all = [...rows(sumUp(results), notRun)];
  const width = Math.max(...all.map(([name]) => name.length));
  return all.map(([name, value]) =>
    `  ${name.padEnd(width)} ${String(value).padStart(9)}`).join('\n');
}
