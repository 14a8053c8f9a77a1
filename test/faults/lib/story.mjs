// A history that a test tells, with one lie in it at most, and the verdict on it.

import { History } from './history.mjs';
import { judge } from './verdict.mjs';

/** A story in which ann follows news; `say` notes what her client sees on connection 1. */
export class Story {
  conn = 1;

  constructor(profile = { policy: 'disconnect' }) {
    this.history = new History(profile);
    this.follow('follow');
  }

  follow(op, user = 'ann') {
    const operation = this.history.followBegun(op, user, 'news');
    this.history.followAcked(operation);
    return this;
  }

  publish(id, { subject = 'news', ack = 'disk', unknown = 0 } = {}) {
    const event = this.history.publishBegun(id, subject, Number(id.slice(1)), ack);
    event.unknown = unknown;
    this.history.publishAcked(event);
    return this;
  }

  say(type, more) {
    this.history.note('ann', type, { conn: this.conn, transport: 'sse', ...more });
    return this;
  }

  begin(keep = 'none') {
    this.conn += 1;
    return this.say('connect', { keep }).say('open');
  }

  gets(id, more) {
    const at = this.history.events.get(id)?.begunMs;
    return this.say('event', { id, subject: 'news', n: Number(id.slice(1)), at, whole: true,
      ...more });
  }

  fault(effects) {
    this.history.faultEnded(this.history.faultBegun('fault', effects));
    return this;
  }

  verdict() {
    return judge(this.history);
  }
}

/** What the verdict finds, in the order of the alphabet. */
export const kinds = (told) => told.verdict().violations.map(({ kind }) => kind).sort();
