// How long an event is promised, by `history.retention` and by the ages of subjects
// (`history.retention_of`). Pure; past.test.mjs feeds lies to its caller.

import { parts } from './parts.mjs';

/** What these rules, `[[pattern, value]]`, say of a subject, or undefined: an id goes before a
 *  prefix, and the longest prefix first. */
export function own(subject, rules) {
  const fitting = rules.filter(([pattern]) => (pattern.endsWith('*')
    ? subject.startsWith(pattern.slice(0, -1)) : subject === pattern));
  const rank = ([pattern]) => (pattern.endsWith('*') ? pattern.length : Infinity);
  return fitting.sort((a, b) => rank(b) - rank(a))[0]?.[1];
}

const longest = ({ retentionMs = Infinity, ages = [] }) =>
  Math.max(retentionMs, ...ages.map(([, ms]) => ms));

/** For how long an event is promised, in ms. What is for some users alone has no subject, and so
 *  `history.retention` (http.md 27.1). Of what is about several subjects the shortest age counts,
 *  as any of them may be asked. */
export function ageOf(history, event) {
  const { retentionMs = Infinity, ages = [] } = history.profile;
  if (history.privates.has(event.subject)) return retentionMs;
  return Math.min(...parts(history, event).map(({ subject }) => own(subject, ages) ?? retentionMs));
}

/** From which age on nothing about the subject is shown. Without an age for it, or a longer one for
 *  others, what is too old goes with its segment. */
export function hiddenAfterMs({ profile }, subject) {
  const { retentionMs = Infinity, ages = [] } = profile;
  return own(subject, ages) ?? (longest(profile) > retentionMs ? retentionMs : Infinity);
}
