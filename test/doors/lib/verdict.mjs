// The verdict on a suite's cases, given the known differences. Pure.

/** Is it what the suite wants? `refused` and `invalid` leave open in which way. */
const agrees = ({ want, got }) =>
  got === want || (['refused', 'invalid'].includes(want) && got.startsWith(want));

/**
 * Sorts cases `{name, want, got, about}`; one without `want` is the reader's choice. `groups` are
 * the known differences, `{got, reason, cases}`. Gives how many cases there are, how many are as
 * wanted and how many are choices; `known`, the differences with their reasons; and `wrong`, lines
 * about those without a reason or with another outcome, and about known ones that are gone.
 */
export function judge(cases, groups) {
  const reasons = new Map(groups.flatMap(({ got, reason, cases: names }) =>
    names.map((name) => [name, { got, reason }])));
  const isKnown = ({ name, got }) => reasons.get(name)?.got === got;
  const rest = cases.filter(({ want }) => want !== undefined);
  const different = rest.filter((one) => !agrees(one));
  const unknown = different.filter((one) => !isKnown(one)).map(({ name, want, got, about }) =>
    `${name}: wanted ${want}, got ${got}${about ? ` (${about})` : ''}`);
  const names = new Set(different.map(({ name }) => name));
  const gone = [...reasons.keys()].filter((name) => !names.has(name))
    .map((name) => `${name}: is a known difference, and is none`);
  return {
    total: cases.length, passed: rest.length - different.length,
    choices: cases.length - rest.length,
    known: different.filter(isKnown).map((one) => ({ ...one, ...reasons.get(one.name) })),
    wrong: [...unknown, ...gone, ...(cases.length === 0 ? ['the suite has no case'] : [])],
  };
}
