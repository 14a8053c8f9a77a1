// The verdict on what came of a directory that was damaged at rest: to a reader that went on from
// its cursor, and in the pages of a subject's past. Pure; still.test.mjs feeds it lies.
//
// A missing event needs a gap around its time. An event that a deletion has hidden, and that is
// shown, needs one around the deletion's: the record that hides it is gone then, and that is
// reported.

import { followed } from './chains.mjs';
import { hidden } from './forgotten.mjs';
import { isAbout, parts } from './parts.mjs';

const covers = ({ from, to }, { begunMs, ackedMs }) =>
  (from === null || from <= ackedMs) && (to === null || to >= begunMs);

const isTold = (gaps, what) => gaps.some((gap) => covers(gap, what));

/** Who was deleted behind this event, and by that hides it from `user`, or from everybody. */
function hiders(history, user, event) {
  const look = { begun: Infinity, ended: Infinity };
  if (hidden(history, user, event, look) !== 'yes') return [];
  const names = [...parts(history, event).map(({ subject }) => subject), user];
  return names.flatMap((name) => history.deaths.get(name) ?? [])
    .filter(({ begun }) => begun > event.acked);
}

/** Judges one event; says what is wrong with it, or that a gap had to explain it. */
function judgeOne(look, event, { found, explained }) {
  const { history, user, who, came, gaps, anew = [], owed } = look;
  const deaths = hiders(history, user, event);
  if (deaths.length > 0) {
    if (!came.has(event.id)) return;
    if (deaths.some((death) => isTold(gaps, death))) explained.push(event.id);
    else found.push(`${who} has ${event.id} from before a deletion, and no gap says so`);
    return;
  }
  if (owed === 'no' && came.has(event.id)) found.push(`${who} has ${event.id}, uninvited`);
  if (owed !== 'yes' || event.ack !== 'disk' || came.has(event.id)) return;
  if (isTold([...gaps, ...anew], event)) explained.push(event.id);
  else found.push(`${who} lacks ${event.id}, and no gap says so`);
}

/**
 * What is wrong with what came to a reader that went on from a cursor of the tick `since`, and
 * whether gaps had to explain any: `{found, told}`. `came` has ids.
 */
export function judgeReader(history, user, { since, came, gaps }) {
  const result = { found: [], explained: [] };
  for (const event of history.events.values()) {
    if (event.acked === null || event.begun < since) continue;
    const owed = followed(history, user, event);
    judgeOne({ history, user, who: user, came, gaps, owed }, event, result);
  }
  return { found: result.found, told: result.explained.length > 0 };
}

/** Likewise of the pages of a subject's past, to the end, where `came` has the kept value too.
 *  `anew`: gaps that told readers that this is another history. Its pages can't know what was in
 *  the one before. */
export function judgePages(history, subject, { came, gaps, anew = [] }) {
  const result = { found: [], explained: [] };
  for (const event of history.events.values()) {
    if (event.acked === null) continue;
    const owed = isAbout(history, event, subject) ? 'yes' : 'no';
    judgeOne({ history, user: undefined, who: `the past of ${subject}`, came, gaps, anew, owed },
      event, result);
  }
  return { found: result.found, told: result.explained.length > 0 };
}
