// The verdict on walks through the past: the pages of what was published about a subject, from the
// newest event to the end, and then polls from the first page's cursor to what was newest by then.
//
// A walk is `{subject, t, ms, asked, turned, paged, ended, entries, kept}`. `t` is the tick before
// its first request, `asked` the one before its last, and `ended` the one after its answer;
// `turned` is after its first page, `paged` after its last one. `entries` are in the order in which
// they came, each with `t`, `ms`, `asked`, the tick before its request, and `page`, which is false
// for events of the polls:
//   event   {id, subject, n, at, whole}      gap   {from, to, reason}
// `kept` is the event that the first page had as the subject's kept value, or undefined.
//
// Owed is every event about the subject that was acknowledged before the last request began. It has
// to be there, unless excuses.mjs has a reason, or its subject has a count, so many newer ones may
// have been there when the pages were read, and a gap says that there is more. Pages show nothing
// that is beyond the count for sure. Between the pages, and between them and the polls, each is
// there once, in an order that is that of their publishing; and the kept value isn't one that was
// replaced before the walk began.
//
// Pure, as verdict.mjs is; past.test.mjs feeds it lies.

import { hiddenAfterMs } from './ages.mjs';
import { mayBeDamaged } from './chains.mjs';
import { countOf, maybeNewer, surelyNewer } from './counts.mjs';
import { AGE_SLACK_MS, excuse, isCovered } from './excuses.mjs';
import { hidden } from './forgotten.mjs';
import { isAbout } from './parts.mjs';

class Walk {
  found = [];

  constructor(walk, context) {
    this.walk = walk;
    this.history = context.history;
    this.context = { ...context, user: undefined, stalled: false };
  }

  #violation(kind, entry, text) {
    const { subject } = this.walk;
    this.found.push({ kind, t: entry.t, id: entry.id, subject, text: `${text} (${subject})` });
  }

  /** What was published about it, by id; whatever isn't is garbled. */
  #event(entry) {
    const event = this.history.events.get(entry.id);
    const isRight = event && entry.whole && event.subject === entry.subject && event.n === entry.n
      && isAbout(this.history, event, this.walk.subject);
    if (isRight) {
      const look = { begun: this.walk.t, ended: entry.t };
      if (hidden(this.history, undefined, event, look) === 'yes') {
        this.#violation('shown again', entry, 'from before its subject was deleted');
      }
      return event;
    }
    this.#violation('past garbled', entry, 'an event that was not published like this');
    return undefined;
  }

  gaps() {
    const { profile } = this.history;
    for (const entry of this.walk.entries.filter(({ type }) => type === 'gap')) {
      entry.just = entry.reason === 'damaged' ? mayBeDamaged(this.history, entry.t)
        : entry.reason === 'too_old'
          && (profile.retentionMs !== undefined || (entry.page && this.#mayEnd(entry)));
      if (!entry.just) this.#violation('past gap', entry, `a gap without cause: ${entry.reason}`);
    }
  }

  /** There may have been more than the count when this page was read. */
  #mayEnd({ t }) {
    const events = this.context.about.get(this.walk.subject) ?? [];
    return events.filter(({ begun }) => begun < t).length > this.#count;
  }

  get #count() {
    return countOf(this.history, this.walk.subject);
  }

  /** So many are newer that pages didn't have to show it, and it is told that there is more. */
  #isBeyond(event) {
    const { subject, turned, paged, entries } = this.walk;
    return event.begun < turned
      && maybeNewer(this.context.about.get(subject), event, paged) >= this.#count
      && entries.some((gap) => gap.page && gap.reason === 'too_old'
        && isCovered(event, gap, this.context));
  }

  /** Each once, and in order; gives the ids that are there. */
  events() {
    const entries = this.walk.entries.filter(({ type }) => type === 'event');
    const back = entries.filter(({ page }) => page).reverse();
    const seen = new Map();
    let newest = null;
    for (const entry of [...back, ...entries.filter(({ page }) => !page)]) {
      const event = this.#event(entry);
      if (!event) continue;
      this.#age(entry, event);
      this.#counted(entry, event);
      const first = seen.get(event.id);
      const isDamaged = this.history.damage.has(event.id);
      if (first && !isDamaged && !this.#mayComeTwice(event, first)) {
        this.#violation('past doubled', entry, 'the same event twice');
      }
      if (newest && event.acked !== null && event.acked < newest.begun && !isDamaged) {
        this.#violation('past reordered', entry, `after ${newest.id}, which was published later`);
      }
      if (!newest || newest.begun < event.begun) newest = event;
      seen.set(event.id, first ?? entry);
    }
    return seen;
  }

  /** What was too old for its subject when the walk began must not be there. */
  #age(entry, event) {
    const ageMs = this.walk.ms - event.ackedMs;
    if (event.acked === null || !entry.page) return;
    if (ageMs > hiddenAfterMs(this.history, this.walk.subject) + AGE_SLACK_MS) {
      this.#violation('past too old', entry, `acknowledged ${ageMs} ms before it was asked for`);
    }
  }

  #counted(entry, event) {
    const { about } = this.context;
    if (entry.page && surelyNewer(this.history, about.get(this.walk.subject), event, entry.asked)
        >= this.#count) {
      this.#violation('past too many', entry, `not among the newest ${this.#count}`);
    }
  }

  /** An id is in the history once, however often it was published, for as long as it is known. A
   *  poll is a resume: what comes by two of them is no more than a copy. */
  #mayComeTwice(event, first) {
    return !first.page || (event.unknown > 0 && this.history.profile.retentionMs !== undefined);
  }

  missing(seen, tally) {
    const { subject, asked, ended, entries } = this.walk;
    for (const event of this.context.about.get(subject) ?? []) {
      if (event.acked === null || event.acked >= asked || seen.has(event.id)) continue;
      const why = excuse(event, { kept: entries, ended }, this.context)
        ?? (this.#isBeyond(event) ? 'beyond its subject\'s count' : undefined);
      if (why === undefined) {
        this.#violation('past lost', { t: asked, id: event.id }, 'acknowledged, and not there');
      } else {
        tally.excused[why] = (tally.excused[why] ?? 0) + 1;
      }
    }
  }

  kept() {
    const { subject, t, ended, kept, entries } = this.walk;
    if (!this.history.kept.has(subject)) return;
    const value = kept && this.#event(kept);
    for (const event of this.context.events.get(subject) ?? []) {
      const isOwed = event.acked !== null && event.acked < t;
      const isThere = value && (value.acked === null || value.acked >= event.begun);
      if (!isOwed || isThere) continue;
      if (excuse(event, { kept: entries, ended }, this.context) === undefined) {
        this.#violation('kept lost', { t, id: event.id },
          value ? `replaced by one before it, ${value.id}` : 'no kept value');
        return;
      }
    }
  }
}

/** Judges all walks of a history; gives violations, whose kinds begin with `past` or `kept`. */
export function judgeWalks(context, tally) {
  return context.history.walks.flatMap((walk) => {
    const reader = new Walk(walk, context);
    reader.gaps();
    const seen = reader.events();
    reader.missing(seen, tally);
    reader.kept();
    tally.walked += seen.size;
    return reader.found;
  });
}
