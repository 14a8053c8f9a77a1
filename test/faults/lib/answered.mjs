// The verdict on answers to a WebSocket's `subscribe` with `last` (protocol/http.md 25.4): the
// newest events about the subject, and later ones live.
//
// An answer is `{conn, subject, last, asked, t, ms, entries, kept}`: `asked` is the tick before its
// request, `t` the one after it, `entries` are events and gaps as chains.mjs has them.
//
// It has to have, in order and once, each event that was acknowledged before its request and than
// which fewer than `last` may be newer, unless excuses.mjs has a reason; none than which more are
// newer for sure; and the kept value. Events that are published while it is on its way come with it
// or live, by chains.mjs and verdict.mjs; earlier ones come with it alone.
//
// Pure; answered.test.mjs feeds it lies.

import { ageOf } from './ages.mjs';
import { countOf, maybeNewer, surelyNewer } from './counts.mjs';
import { AGE_SLACK_MS, excuse } from './excuses.mjs';
import { hidden } from './forgotten.mjs';
import { isAbout } from './parts.mjs';

const mostOf = (history, { subject, last }) => Math.min(last, countOf(history, subject));

/** May so few be newer that an event that isn't too old has to be in the answer, or come live? */
export function isAmong(history, about, event, answer) {
  const isYoung = answer.ms - event.begunMs < ageOf(history, event) - AGE_SLACK_MS;
  return event.begun < answer.t && isYoung && isAbout(history, event, answer.subject)
    && maybeNewer(about.get(answer.subject), event, answer.t) < mostOf(history, answer);
}

class Answer {
  found = [];

  constructor(answer, user, context) {
    this.answer = answer;
    this.user = user;
    this.context = context;
    this.history = context.history;
    this.events = context.about.get(answer.subject) ?? [];
  }

  #violation(kind, entry, text) {
    this.found.push({ kind, user: this.user, t: this.answer.t, id: entry.id,
      subject: this.answer.subject, text: `${text}, in the answer to a subscribe` });
  }

  #event(entry) {
    const event = this.history.events.get(entry.id);
    const isRight = event && entry.whole && event.subject === entry.subject && event.n === entry.n
      && isAbout(this.history, event, this.answer.subject);
    if (!isRight) {
      this.#violation('garbled', entry, 'an event that was not published like this');
      return undefined;
    }
    const look = { begun: this.answer.asked, ended: this.answer.t };
    if (hidden(this.history, undefined, event, look) === 'yes') {
      this.#violation('shown again', entry, 'from before its subject was deleted');
    }
    return event;
  }

  /** Each once, in order, and not too many. */
  entries() {
    const seen = new Set();
    let newest = null;
    for (const entry of this.answer.entries.filter(({ type }) => type === 'event')) {
      const event = this.#event(entry);
      if (!event) continue;
      const isDamaged = this.history.damage.has(event.id);
      if (seen.has(event.id) && !isDamaged) this.#violation('doubled', entry, 'the same twice');
      if (newest && event.acked !== null && event.acked < newest.begun && !isDamaged) {
        this.#violation('reordered', entry, `after ${newest.id}, which was published later`);
      }
      const most = mostOf(this.history, this.answer);
      if (surelyNewer(this.history, this.events, event, this.answer.asked) >= most) {
        this.#violation('stray', entry, `not among the newest ${most}`);
      }
      if (!newest || newest.begun < event.begun) newest = event;
      seen.add(event.id);
    }
    return seen;
  }

  gaps() {
    for (const gap of this.answer.entries.filter(({ type }) => type === 'gap')) {
      if (!gap.just) this.#violation('unjust gap', gap, `a gap without cause: ${gap.reason}`);
    }
  }

  /** Is it one gap in place of all events, as the log stood still (http.md 25.5)? */
  #isBehind() {
    const { asked, t, entries } = this.answer;
    return entries.length === 1 && entries[0].type === 'gap' && entries[0].reason === 'damaged'
      && entries[0].from === null && this.history.faults.some((fault) => fault.still
        && fault.begun < t && (fault.ended ?? Infinity) > asked);
  }

  /** What had been published before it was asked for. */
  missing(seen, tally) {
    const { asked, t, entries } = this.answer;
    const excused = (why) => { tally.excused[why] = (tally.excused[why] ?? 0) + 1; };
    if (this.#isBehind()) {
      excused('gap: the log stood still');
      return;
    }
    for (const event of this.events) {
      if (event.acked === null || event.acked >= asked || seen.has(event.id)) continue;
      if (!isAmong(this.history, this.context.about, event, this.answer)) continue;
      tally.checked += 1;
      const why = excuse(event, { kept: entries, ended: t, newest: new Map() }, this.context);
      if (why === undefined) this.#violation('lost', event, 'among the newest, and not there');
      else excused(why);
    }
  }

  /** The newest of those that are kept, or one that is newer. */
  kept() {
    const { subject, asked, t, entries, kept } = this.answer;
    const value = kept && this.#event(kept);
    if (!this.history.kept.has(subject)) return;
    for (const event of this.context.events.get(subject) ?? []) {
      const isOwed = event.acked !== null && event.acked < asked;
      if (!isOwed || (value && (value.acked === null || value.acked >= event.begun))) continue;
      const chain = { kept: entries, ended: t, newest: new Map() };
      if (excuse(event, chain, this.context) !== undefined) continue;
      this.#violation('kept lost', event, value ? `${value.id} in its place` : 'no kept value');
      return;
    }
  }
}

/** Judges the answers that one chain had; gives violations. */
export function judgeAnswers(chain, user, context, tally) {
  return chain.answers.flatMap((answer) => {
    const reader = new Answer(answer, user, context);
    reader.gaps();
    reader.missing(reader.entries(), tally);
    reader.kept();
    tally.answers += 1;
    return reader.found;
  });
}
