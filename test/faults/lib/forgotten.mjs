// Traces of deleted users: no event about them, or for them alone, from before that. A deletion
// takes its time: events that were acknowledged before it began are hidden from all that begins
// after its answer, and in between both are right. Pure; forgotten.test.mjs feeds it lies.

import { parts } from './parts.mjs';

/** Whose deletion hides this event from `user`, or from everybody where that is undefined. */
function names(history, user, event) {
  const isPrivate = history.privates.has(event.subject);
  const about = isPrivate ? [] : parts(history, event).map(({ subject }) => subject);
  // The user is somebody new, to whom nothing comes from before but what a session may ask for.
  const isOpen = about.some((subject) => history.subscribed.get(user)?.has(subject));
  return user === undefined || isOpen ? about : [...about, user];
}

/** The record of it was cut off, or a bit flipped in both of its copies. */
const isLost = ({ cuts, faults }, { begun, acked }) =>
  cuts.some(({ t, from }) => t > begun && acked > from)
    || faults.some((fault) => fault.anywhere && fault.begun > begun);

/**
 * Must an event not be there for who looks from `begun` to `ended`? `'maybe'` if its user was being
 * deleted, and where a fault can have taken the record that hides it.
 */
export function hidden(history, user, event, { begun, ended }) {
  const deaths = names(history, user, event).flatMap((name) => history.deaths.get(name) ?? [])
    .filter((death) => death.begun < ended && event.begun < (death.acked ?? Infinity));
  if (deaths.length === 0) return 'no';
  const isSure = (death) => event.acked !== null && event.acked < death.begun
    && death.acked !== null && death.acked < begun && !isLost(history, death);
  return deaths.some(isSure) ? 'yes' : 'maybe';
}

/** Its own past was hidden before `t`: who comes back with a cursor from there is told. */
export const mayHideIts = ({ deaths }, user, t) =>
  (deaths.get(user) ?? []).some(({ begun }) => begun < t);

/** A session that was there in this time was closed by the deletion of its user. */
export const isEnded = ({ deaths }, user, { begun, ended }) => (deaths.get(user) ?? [])
  .some((death) => death.begun < ended && begun < (death.acked ?? Infinity));
