// Why an event that is owed may be missing from what was kept of a chain (chains.mjs) or of a walk
// through the past (past.mjs): a gap, for a cause that this round has, or what the checker did.
// Pure.

import { ageOf } from './ages.mjs';
import { hidden } from './forgotten.mjs';
import { parts } from './parts.mjs';

/** How long after its acknowledgement an event that is only in memory may die with the brain. */
const MEMORY_MS = 5_000;
/** Retention isn't exact: a segment goes as a whole. But it never goes early. */
export const AGE_SLACK_MS = 500;

/** The times that a gap has to cover: the event's own, if any client has ever seen it. */
function timesOf(event, ats, profile) {
  const at = ats.get(event.id);
  if (at !== undefined) return [at, at];
  const slack = profile.clockSlackMs ?? 0;
  return [event.begunMs - slack, event.ackedMs + slack];
}

function covers(gap, [earliest, latest]) {
  return (gap.from === null || gap.from <= latest) && (gap.to === null || gap.to >= earliest);
}

/** Does a gap that has a cause say this event's time? */
export const isCovered = (event, gap, { history, ats }) => gap.type === 'gap' && gap.just
  && covers(gap, timesOf(event, ats, history.profile));

function excusedByGap(event, chain, context) {
  const gap = [...chain.kept, ...chain.aside ?? []].find((entry) =>
    isCovered(event, entry, context) && isCause(entry, event, context));
  return gap && `gap: ${gap.reason}`;
}

/** Who left a subject is still owed what was published before: a record in the log says so, and
 *  that record can be the one that was damaged. Where a bit flipped the server knows, and tells. */
function lostItsUnfollow(event, { history, user }, isTold) {
  const left = parts(history, event)
    .flatMap(({ subject }) => history.follows.get(user)?.get(subject) ?? [])
    .filter(({ op, begun }) => op === 'unfollow' && begun > event.begun);
  const flipped = ({ begun }) => history.faults.some((fault) => fault.anywhere
    && fault.begun > begun);
  const cut = ({ begun, acked }) => history.cuts.some(({ t, from }) => t > begun
    && (acked === null || acked > from));
  return left.some((operation) => cut(operation) || (isTold && flipped(operation)));
}

const isTooOld = (gap, event, history) =>
  gap.ms - event.begunMs >= ageOf(history, event) - AGE_SLACK_MS;

/** One gap can have both causes; it names the damage then. */
function isCause(gap, event, context) {
  const { damage } = context.history;
  if (gap.reason === 'damaged') {
    return damage.has(event.id) || isTooOld(gap, event, context.history)
      || lostItsUnfollow(event, context, true) || foundNoRoom(event, context)
      || wasAway(gap, context);
  }
  return gap.reason !== 'too_old' || isTooOld(gap, event, context.history);
}

/** The files were somewhere else when the client came back for what is in them. */
function wasAway({ t, ms }, { history }) {
  return history.faults.some(({ away, begun, endedMs }) => away && begun < t
    && (endedMs === null || ms <= endedMs));
}

/** It could not be written: it was acknowledged before, or it was published again and the server
 *  found what the failed write had left. */
function foundNoRoom(event, { history }) {
  return (event.ack === 'memory' || event.unknown > 0) && history.faults.some((fault) => fault.fills
    && fault.begunMs <= event.ackedMs + MEMORY_MS && (fault.endedMs ?? Infinity) >= event.begunMs);
}

function diedInMemory(event, { history }) {
  return event.ack === 'memory' && history.faults.some((fault) => fault.kills
    && (fault.endedMs ?? Infinity) >= event.ackedMs
    && fault.begunMs <= event.ackedMs + MEMORY_MS);
}

/** Why an owed event may be missing, or undefined. */
export function excuse(event, chain, context) {
  const look = { begun: -Infinity, ended: chain.ended ?? Infinity };
  if (hidden(context.history, context.user, event, look) !== 'no') return 'a user was deleted';
  const gap = excusedByGap(event, chain, context);
  if (gap) return gap;
  const damage = context.history.damage.get(event.id);
  if (damage) return `not told: ${damage}`;
  if (lostItsUnfollow(event, context, false)) return 'not told: an unfollow was cut off';
  if (diedInMemory(event, context)) return 'ack: memory, and the brain was killed';
  const isReplaced = context.history.profile.policy === 'latest_per_subject' && context.stalled
    && !context.history.privates.has(event.subject) && isBefore(event, chain);
  if (isReplaced) return 'a newer one came instead';
  return undefined;
}

export const isBefore = (event, chain) =>
  event.acked < (chain.newest.get(event.subject)?.event.begun ?? -1);
