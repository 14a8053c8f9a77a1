// How many of the newest events about a subject the past shows (`history.retention_of`, counts):
// pages and `last=` have these, as of when they are read. Nobody saw that moment, so there are two
// numbers: who is newer for sure decides what must not be shown, who may be newer what must be.
// Pure; past.test.mjs and newest.test.mjs feed lies to who asks.

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
