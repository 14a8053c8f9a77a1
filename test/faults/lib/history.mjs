// A round, as the checker saw it: the input of `judge` in verdict.mjs.
//
// Every observation gets a *tick*: the checker is one thread, so the ticks order all that it saw
// and did. `begun` is the tick before a request was written, `acked` the tick after its answer was
// read; the server acted somewhere in between. Milliseconds are kept as well, for people and for
// the times of gaps.
//
//   events   id -> {id, subject, n, ack, begun, begunMs, acked, ackedMs, unknown} `unknown` counts
//            attempts with an unknown outcome
//   follows  user -> subject -> [{op: 'follow' | 'unfollow', begun, acked}], one at a time
//   followers  subject -> Set of users of whom `follows` knows anything about it
//   privates  name -> Set of users: what is published under the name is for them alone. The name
//            stands for a subject here; no client sees it
//   joints   name -> subjects: what is published under the name is about all of them, in this
//            order. The name stands for a subject here, as above
//   kept     Set of subjects whose events are all published with "keep"
//   subscribed  user -> Set of subjects that each of its sessions is subscribed to, from its
//            beginning, and says again when it comes back
//   listed   lists of followers and following that were read: {lists, names, violations}
//   users    user -> entries in order, each with `t` and `ms`:
//              connect {conn, transport, keep, last, expMs, byOperations}
//                        keep: how many of the kept events and gaps the cursor covers, 'none'
//                        without one, 'bad' with an invalid one. last: how many of the newest of
//                        each subject were requested, if any. expMs: when its token expires.
//                        byOperations: its subjects are sent one by one
//              open    {conn}                   the welcome, or the answer of a first poll
//              refused {conn, code}             403 or 503, with the error's code
//              answer  {conn, subject, last, asked, entries, kept}    to one of these: answered.mjs
//              event   {conn, id, subject, n, at, data ok or not}
//              gap     {conn, from, to, reason}
//              stall   {conn}                   the client stops reading for a while
//              late    {conn, forMs}            so did the whole checker: it was held up
//              garbled {conn, text}             bytes that are no event, gap, cursor or heartbeat
//              close   {conn, by: 'client' | 'server', why}
//   walks    pages of the past of a subject, as they were read one after the other, and then what
//            was published after them: [{subject, t, ms, asked, ended, entries, kept}] (past.mjs)
//   deaths   user -> [{begun, begunMs, acked, ackedMs}]: the user was deleted, one time after the
//            other. It ends its follows both ways, which `follows` has as well
//   visitors   Set of names of clients without a user
//   admissions   user -> [{t, ms, says}]: the operator's server's answers to whether the user may
//            connect: 'yes', 'no', or 'none' for a missing one; `unanswered` has the times of
//            these, of all users
//   faults   [{name, begun, ended, begunMs, endedMs, closes, kills, damages, fills, links, power}]
//            closes: what the fault does to connections allows the server to close them;
//            kills: the brain died; spares: or a part of it alone; damages: bytes of the log were
//            changed; fills: the log could not be written; power: what was not synced may be gone;
//            away: the files were somewhere else;
//            links: a link was cut; silences: the operator's server doesn't listen
//   damage   id -> what the checker did to its record in the log
//   told     messages besides the events (told.mjs), in numbers for the table
//   cuts     [{t, from}]: the end of the log was cut off, and nothing written before `from`
//
// It is data and a clock. It judges nothing.

export class History {
  #tick = 0;
  events = new Map();
  follows = new Map();
  followers = new Map();
  privates = new Map();
  joints = new Map();
  kept = new Set();
  subscribed = new Map();
  listed = { lists: 0, names: 0, violations: [] };
  users = new Map();
  walks = [];
  deaths = new Map();
  visitors = new Set();
  admissions = new Map();
  unanswered = [];
  faults = [];
  damage = new Map();
  cuts = [];
  told = {};

  /** @param profile what the round promises, see profiles.mjs: policy, retentionMs, clockSlackMs,
   *  ages: [[pattern of subjects, ms]], counts: [[pattern of subjects, count]],
   *  connectTtlMs */
  constructor(profile) {
    this.profile = profile;
  }

  tick() {
    this.#tick += 1;
    return this.#tick;
  }

  publishBegun(id, subject, n, ack) {
    const event = { id, subject, n, ack, begun: this.tick(), begunMs: Date.now(),
      acked: null, ackedMs: null, unknown: 0 };
    this.events.set(id, event);
    return event;
  }

  publishAcked(event) {
    if (event.acked !== null) return;
    event.acked = this.tick();
    event.ackedMs = Date.now();
  }

  /** Gives the operation; `followAcked` takes it. */
  followBegun(op, user, subject) {
    if (!this.follows.has(user)) this.follows.set(user, new Map());
    const subjects = this.follows.get(user);
    if (!subjects.has(subject)) subjects.set(subject, []);
    const operation = { op, begun: this.tick(), acked: null };
    subjects.get(subject).push(operation);
    if (!this.followers.has(subject)) this.followers.set(subject, new Set());
    this.followers.get(subject).add(user);
    return operation;
  }

  followAcked(operation) {
    operation.acked = this.tick();
  }

  /** A user is about to be deleted, and its follows both ways; `deathAcked` takes what it gives. */
  deathBegun(user) {
    const subjects = [...this.follows.get(user)?.keys() ?? []];
    const pairs = [...subjects.map((subject) => [user, subject]),
      ...[...this.followers.get(user) ?? []].map((other) => [other, user])];
    const follows = pairs.map((pair) => this.followBegun('unfollow', ...pair));
    const death = { begun: this.tick(), begunMs: Date.now(), acked: null, ackedMs: null, follows };
    if (!this.deaths.has(user)) this.deaths.set(user, []);
    this.deaths.get(user).push(death);
    return death;
  }

  deathAcked(death) {
    death.acked = this.tick();
    death.ackedMs = Date.now();
    for (const operation of death.follows) operation.acked = death.acked;
  }

  /** The operator's server says whether the user may connect, or nothing. */
  admitted(user, says) {
    const admission = { t: this.tick(), ms: Date.now(), says };
    if (!this.admissions.has(user)) this.admissions.set(user, []);
    this.admissions.get(user).push(admission);
    if (says === 'none') this.unanswered.push(admission.ms);
  }

  /** A list was read and held against the model (answers.mjs). */
  listRead(names, violations) {
    this.listed.lists += 1;
    this.listed.names += names;
    this.listed.violations.push(...violations);
  }

  /** Another one that knows the same follows and events, and goes on by itself. */
  copy() {
    const other = new History(this.profile);
    other.#tick = this.#tick;
    other.events = new Map(this.events);
    other.follows = structuredClone(this.follows);
    other.followers = structuredClone(this.followers);
    other.privates = this.privates;
    other.joints = this.joints;
    other.kept = this.kept;
    other.subscribed = this.subscribed;
    return other;
  }

  user(user) {
    if (!this.users.has(user)) this.users.set(user, []);
    return this.users.get(user);
  }

  note(user, type, more) {
    const entry = { t: this.tick(), ms: Date.now(), type, ...more };
    this.user(user).push(entry);
    return entry;
  }

  faultBegun(name, effects = {}) {
    const fault = { name, begun: this.tick(), begunMs: Date.now(), ended: null, endedMs: null,
      ...effects };
    this.faults.push(fault);
    return fault;
  }

  tailCut(from) {
    this.cuts.push({ t: this.tick(), from });
  }

  faultEnded(fault) {
    fault.ended = this.tick();
    fault.endedMs = Date.now();
  }
}
