// How many of the newest events about a subject the past shows (`history.retention_of`, counts):
// pages and `last=` have these, as of when they are read. The checker didn't see that moment, so
// there are two numbers: that of events which are newer for sure decides which must not be shown,
// that of events which may be newer which must be. Pure; past.test.mjs and newest.test.mjs feed its
// callers lies.

import { own } from './ages.mjs';

/** The subject's count, or Infinity. */
export const countOf = ({ profile }, subject) => own(subject, profile.counts ?? []) ?? Infinity;

/** How many of `events` were newer for sure when something was read that was asked for at `t`. What
 *  a fault may have taken again isn't counted. */
export function surelyNewer({ damage, faults }, events, event, t) {
  if (event.acked === null || faults.some(({ away }) => away)) return 0;
  return events.filter((other) => other.begun > event.acked && other.acked !== null
    && other.acked < t && other.ack === 'disk' && other.unknown === 0
    && !damage.has(other.id)).length;
}

/** How many of `events` may have been newer when something was read before `t`. */
export const maybeNewer = (events, event, t) => events.filter((other) => other !== event
  && other.begun < t && (other.acked === null || other.acked > event.begun)).length;
