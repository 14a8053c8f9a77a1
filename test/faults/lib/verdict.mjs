// The verdict: what the history of a round proves.
//
// For every user and every event that was acknowledged: if the user followed the subject from
// before the publish was begun until after it was acknowledged, and had been welcomed before, the
// event is *owed*; so is one about a subject that the user's sessions are subscribed to, and a
// private one to each of its users that had been welcomed. Of an event about several subjects one
// is enough. A chain that begins with the wish for the newest N of each subject is owed those as
// well: an event about a subscribed subject than which fewer than N about that can be newer; and
// the newest kept one, however old it is; likewise from an operation that subscribes with `last`
// (answered.mjs). An event that is owed and not kept (chains.mjs) is lost, unless
//   - a gap says so, for a cause that this round has, and its times cover the event's; or
//   - the checker itself took the record out of the log; or
//   - the publisher asked for `ack: memory` and the brain was killed right after; or
//   - it asked for that, the log could not be written just then, and a gap says so; or
//   - the policy keeps only the newest event of a subject, and a newer one came.
// A client that left its chain can't show that the last events were lost on it, but a hole before
// something newer about the same subject is a loss as well.
//
// A pure function: the same history gives the same verdict, and verdict.test.mjs feeds it lies.

import { ageOf } from './ages.mjs';
import { isAmong, judgeAnswers } from './answered.mjs';
import { followed, isSubscribed, readUser } from './chains.mjs';
import { countOf, maybeNewer } from './counts.mjs';
import { AGE_SLACK_MS, excuse, isBefore } from './excuses.mjs';
import { isAbout, parts } from './parts.mjs';
import { judgeWalks } from './past.mjs';

const VIOLATIONS_MAX = 1_000;

const bySubject = (events) => {
  const map = new Map();
  for (const event of events.values()) {
    if (!map.has(event.subject)) map.set(event.subject, []);
    map.get(event.subject).push(event);
  }
  return map;
};

/** Those about several subjects are under each of them. */
const byPart = (history) => {
  const map = new Map();
  for (const event of history.events.values()) {
    for (const { subject } of parts(history, event)) {
      if (!map.has(subject)) map.set(subject, []);
      map.get(subject).push(event);
    }
  }
  return map;
};

/** Is it one of the newest that the chain asked for? */
function isWished(event, chain, user, { history, about }) {
  const { last, t } = chain.connect;
  if (last === undefined || event.acked >= t || !isSubscribed(history, user, event)) return false;
  const ageMs = ageOf(history, event);
  const isYoung = ageMs === Infinity
    || chain.readBy.ms - event.begunMs < ageMs - AGE_SLACK_MS;
  return parts(history, event).some(({ subject }) => {
    if (!history.subscribed.get(user).has(subject)) return false;
    const newer = maybeNewer(about.get(subject), event, chain.readBy.t);
    const isKept = history.kept.has(subject) && newer === 0;
    return isKept || (newer < Math.min(last, countOf(history, subject)) && isYoung);
  });
}

/** Is it about something that the chain subscribed to by an operation, from that on? */
const isAnswered = (event, chain, { history, about }) => chain.answers.some((answer) =>
  (event.acked > answer.asked && isAmong(history, about, event, answer))
  || (event.begun > answer.t && isAbout(history, event, answer.subject)));

/** Everything that one chain owes, checked; gives what is missing. */
function checkChain(chain, user, context, tally) {
  const missing = [];
  if (chain.opened === null) return missing;
  const privates = [...context.history.privates].filter(([, users]) => users.has(user));
  const subjects = new Set([user, ...(context.history.follows.get(user)?.keys() ?? []),
    ...context.history.subscribed.get(user) ?? [], ...privates.map(([name]) => name),
    ...context.history.joints.keys()]);
  for (const subject of subjects) {
    for (const event of context.events.get(subject) ?? []) {
      if (event.acked === null) continue;
      if (event.begun < chain.opened.t && !isWished(event, chain, user, context)
        && !isAnswered(event, chain, context)) continue;
      if (followed(context.history, user, event) !== 'yes') continue;
      if (chain.left && !isBefore(event, chain) && !chain.has(event.id)) {
        if (event.begun < chain.left.t) tally.undecided += 1;
        continue;
      }
      tally.checked += 1;
      if (chain.has(event.id)) continue;
      const why = excuse(event, chain, context);
      if (why === undefined) missing.push(event);
      else tally.excused[why] = (tally.excused[why] ?? 0) + 1;
    }
  }
  return missing;
}

function addCounts(sum, more) {
  for (const [key, count] of Object.entries(more)) sum[key] = (sum[key] ?? 0) + count;
}

/** The server's own times of events, from whoever has seen them. */
function eventTimes(history) {
  const ats = new Map();
  const seen = [...history.users.values(), ...history.walks.map(({ entries }) => entries)];
  for (const entries of seen) {
    for (const entry of entries) if (entry.type === 'event') ats.set(entry.id, entry.at);
  }
  return ats;
}

/**
 * Judges a history (history.mjs).
 *
 * Gives `{ok, violations, kinds, tally}`, the first violations and how many of each kind.
 * A violation is `{kind, user, t, text, id?, subject?}`; its kind is lost, reordered, doubled,
 * uninvited, shown again, stray, garbled, dropped, outlived, unjust gap or unacknowledged; or one
 * of answers.mjs, answered.mjs, let_in.mjs or past.mjs.
 */
export function judge(history) {
  const context = { history, events: bySubject(history.events), ats: eventTimes(history),
    about: byPart(history) };
  const tally = { published: history.events.size, acked: 0, received: 0, checked: 0,
    connections: 0, expired: 0, undecided: 0, answers: 0, duplicates: {}, gaps: {}, excused: {},
    faults: {}, told: history.told, turnedAway: 0, turnedOut: 0,
    admissions: [...history.admissions.values()].flat().length,
    lists: history.listed.lists, names: history.listed.names, walks: history.walks.length,
    walked: 0, deaths: [...history.deaths.values()].flat().length };
  const violations = [...history.listed.violations, ...judgeWalks(context, tally)];
  for (const event of history.events.values()) {
    if (event.acked !== null) tally.acked += 1;
    else {
      violations.push({ kind: 'unacknowledged', t: event.begun, id: event.id,
        subject: event.subject, text: `never acknowledged, ${event.unknown} attempts` });
    }
  }
  for (const user of history.users.keys()) {
    const reader = readUser(history, user, context.about);
    context.user = user;
    context.stalled = history.user(user)
      .some(({ type }) => type === 'stall' || type === 'late');
    violations.push(...reader.found);
    tally.received += reader.received;
    tally.connections += reader.connections;
    tally.expired += reader.expired;
    tally.turnedAway += reader.turnedAway;
    tally.turnedOut += reader.turnedOut;
    addCounts(tally.duplicates, reader.duplicates);
    addCounts(tally.gaps, reader.gaps);
    for (const chain of reader.chains) {
      violations.push(...judgeAnswers(chain, user, context, tally));
      for (const event of checkChain(chain, user, context, tally)) {
        violations.push({ kind: 'lost', user, t: event.acked, id: event.id,
          subject: event.subject, text: 'owed, and not delivered' });
      }
    }
  }
  const kinds = {};
  for (const { kind } of violations) addCounts(kinds, { [kind]: 1 });
  for (const { name } of history.faults) addCounts(tally.faults, { [name]: 1 });
  violations.sort((a, b) => a.t - b.t);
  return { ok: violations.length === 0, violations: violations.slice(0, VIOLATIONS_MAX),
    violationCount: violations.length, kinds, tally };
}
