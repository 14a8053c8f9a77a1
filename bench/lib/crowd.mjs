// Users who follow, connect, leave and come back, and the numbered events that they must get.

import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { http } from '../../test/lib/client.mjs';
import { Clients, begin, load } from './load.mjs';

/** Followers of each subject, as in `groups`. */
export const FOLLOWERS = 16;
/** Connections that publish as fast as it goes, and events in one of their requests. */
const FILLING = 8;
const BATCH_MAX = 64;

/**
 * A crowd of `count` users in groups of sixteen, who follow a subject each: user `<name>1` follows
 * `<name>s0`. Its follows are imported when this returns; nobody is connected.
 */
export class Crowd {
  #halley;
  #files;
  #count;
  #patience;

  constructor(halley, plan, folder, name, count) {
    this.#halley = halley;
    this.#count = count;
    this.#patience = plan.patience;
    this.name = name;
    this.groups = Math.ceil(count / FOLLOWERS);
    const file = (kind) => join(folder, `${name}-${kind}`);
    this.#files = { users: file('users.txt'), follows: file('follows.txt'),
      subjects: file('subjects.txt'), numbers: file('numbers.json') };
  }

  static async make(halley, plan, folder, name, count) {
    const crowd = new Crowd(halley, plan, folder, name, count);
    await crowd.#import();
    return crowd;
  }

  async #import() {
    const lines = (total, line) => Array.from({ length: total }, (_, n) => `${line(n)}\n`).join('');
    const subject = (group) => `${this.name}s${group}`;
    const user = (n) => `${this.name}${n + 1}`;
    const pair = (n) => `${user(n)} ${subject(Math.floor(n / FOLLOWERS))}`;
    const follows = lines(this.#count, pair);
    writeFileSync(this.#files.users, lines(this.#count, user));
    writeFileSync(this.#files.subjects, lines(this.groups, subject));
    writeFileSync(this.#files.follows, follows);
    rmSync(this.#files.numbers, { force: true });
    const answer = await http('POST', `${this.#halley.apiUrl}/v1/follows`,
      { body: follows, headers: { 'content-type': 'text/plain' } });
    if (answer.status !== 200) throw new Error(`POST /v1/follows: ${answer.status} ${answer.body}`);
  }

  /** All connect over SSE and stay; gives the report of when they had. */
  async connect() {
    this.clients = new Clients('--url', this.#halley.publicUrl,
      '--connections', `${this.#count}`, '--users-file', this.#files.users,
      '--follows', this.#files.follows, '--cursors', '--reconnect');
    const report = await this.clients.ask('ready');
    if (report.connected !== this.#count) {
      throw new Error(`${report.connected} of ${this.#count} connected: ${report.first_problem}`);
    }
    return report;
  }

  /** How many there are. */
  get count() {
    return this.#count;
  }

  #publishing(args) {
    return ['publish', '--url', this.#halley.apiUrl, '--subjects', `file:${this.#files.subjects}`,
      '--numbers', this.#files.numbers, '--in-turn', ...args];
  }

  /** Each subject gets so many events, as fast as they go; gives the publisher's figures. */
  async publishEach(events) {
    // Batches divide the groups, so that each subject gets as many events.
    const batchMax = Math.max(1, Math.min(BATCH_MAX, Math.floor(this.groups / FILLING)));
    let batch = batchMax;
    while (this.groups % batch !== 0) batch -= 1;
    return complete(await load(...this.#publishing(['--closed', '--seconds', '600',
      '--connections', `${Math.min(FILLING, this.groups)}`, '--batch', `${batch}`,
      '--events', `${this.groups * events}`])));
  }

  /** Publishes so many events a second until it is stopped, at most for `seconds`. */
  beginPublishing(eventsPerS, seconds, connections = 32) {
    const publishing = begin(...this.#publishing(['--rate', `${eventsPerS}`,
      '--seconds', `${seconds}`, '--connections', `${Math.min(connections, this.groups)}`]));
    // Read by whoever stops it; a failure before that is theirs as well.
    publishing.result.catch(() => {});
    return { stop: async () => complete(await publishing.stop()) };
  }

  /** From now on everybody must have all that was published by now. */
  expect() {
    return this.clients.ask(`expect ${this.#files.numbers}`);
  }

  /** Waits until all are connected and have what is expected, and gives the report. */
  caughtUp() {
    return this.until(({ standing }) => standing.owed === 0);
  }

  /** Waits until all are connected and the report is as wanted; gives the last report. */
  until(wanted) {
    return this.clients.until((report) => report.connected === this.#count && wanted(report),
      this.#patience);
  }
}

/** A publisher's figures, unless some of its events may or may not have been taken. */
function complete(figures) {
  const { requests_broken: broken, refused, requests } = figures;
  if (broken === 0 && refused === 0) return figures;
  throw new Error(`events were not acknowledged: ${broken} broken, ${refused} refused, `
    + `${JSON.stringify(requests)}: ${figures.first_problem}`);
}

/** What must be nothing, from a report made after everything was expected. */
export function wrongs({ standing, found }) {
  return { lost: standing.owed, gaps: found.gaps, gaps_told: found.gaps_told,
    duplicates: found.duplicates, order_breaks: found.order_breaks };
}

/** Adds up what was wrong in several windows; lost is what is still owed at the end. */
export function sumWrongs(windows) {
  const sum = (name) => windows.reduce((total, window) => total + window[name], 0);
  return { lost: windows.at(-1).lost, gaps: sum('gaps'), gaps_told: sum('gaps_told'),
    duplicates: sum('duplicates'), order_breaks: sum('order_breaks') };
}

/** The metrics as Prometheus scrapes them: `name{labels}` and value. */
export async function metrics(halley) {
  const { body } = await http('GET', `${halley.apiUrl}/metrics`);
  const lines = body.split('\n').filter((line) => line !== '' && !line.startsWith('#'));
  return Object.fromEntries(lines.map((line) => {
    const at = line.lastIndexOf(' ');
    return [line.slice(0, at), Number(line.slice(at + 1))];
  }));
}
