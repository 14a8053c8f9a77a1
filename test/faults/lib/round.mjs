// One round: a Halley of one profile, its publishers and clients, faults in several lanes side by
// side for some seconds, then quiet until everything owed has come, then the verdict.
//
// Lanes don't wait for each other, so a client dies while the brain is being killed. Faults that
// can't go on at the same time (two that stop the server) are in one lane.

import { api } from '../../lib/client.mjs';
import { sleep, until, within } from '../../lib/wait.mjs';
import { FAULTS } from './catalogue.mjs';
import { Server } from './server.mjs';
import { judge } from './verdict.mjs';
import { World } from './world.mjs';

/** How long a lane rests between two faults: [least, most] ms. */
const RESTS = {
  server: [50, 800], link: [100, 1_200], client: [20, 300], follow: [100, 800],
  flood: [200, 1_500], thread: [100, 1_500], hooks: [300, 2_000], door: [100, 1_500],
};
// Far beyond what these take: where the machine is busy with others, everything may wait for it.
const FAULT_MS_MAX = 240_000;
const SETTLE_MS_MAX = 60_000;
const PUBLISHED_MS_MAX = 90_000;
const FAILED_MS_MAX = 5_000;
const WELCOMED_MS_MAX = 60_000;
const END_MS_MAX = 60_000;

async function injectOne(world, fault, random) {
  const record = world.history.faultBegun(fault.name, fault.effects);
  try {
    const note = await within(`fault ${fault.name}`,
      Promise.resolve(fault.inject(world, random)), FAULT_MS_MAX);
    if (note) record.note = note;
  } catch (error) {
    world.wrong(`fault ${fault.name}: ${error.message}`);
  }
  world.history.faultEnded(record);
  if (fault.lane !== 'server' || !world.graph) return;
  try {
    await within(`all is as it was, after ${fault.name}`, look(world), FAULT_MS_MAX);
  } catch (error) {
    world.wrong(`after ${fault.name}: ${error.message}`);
  }
}

/** The model's look at follows, ids and keys; of a brain that ended by itself at its next start. */
async function look(world) {
  if (world.server.halley.hasExited) await world.server.startBrain();
  await world.keys?.check();
  await world.graph.check();
}

/** Injects the faults of a lane, one after the other, until `endsAt`. */
async function runLane(world, lane, faults, endsAt) {
  const random = world.random.fork(lane);
  const rest = world.profile.rests?.[lane] ?? RESTS[lane];
  for (;;) {
    await sleep(random.int(...rest));
    const left = (endsAt - Date.now()) / 1000;
    const possible = faults.filter(({ seconds = 0 }) => seconds < left);
    if (left <= 0 || possible.length === 0 || world.wrongs.length > 0) return;
    const fault = random.weighted(possible);
    // Clients are many: what happens to one doesn't keep another from its fault.
    const injected = injectOne(world, fault, random.fork(fault.name));
    if (lane !== 'client') await injected;
  }
}

/** The lanes of a profile; `only` names the faults that are wanted, all without it. */
function lanesOf(profile, only) {
  const faults = FAULTS.filter(({ name, needs }) => !profile.without.includes(name)
    && (needs === undefined || profile.has?.includes(needs))
    && (only === undefined || only.includes(name)));
  const lanes = new Map();
  for (const fault of faults) lanes.set(fault.lane, [...lanes.get(fault.lane) ?? [], fault]);
  return lanes;
}

const isMissing = (verdict) => verdict.violations.some(({ kind }) =>
  kind === 'lost' || kind === 'unacknowledged');

/**
 * No more faults: everyone comes back, one more event about each subject reaches whoever follows it
 * (so that a round proves something however long its faults took), and what is owed gets its time.
 */
async function settle(world) {
  for (const client of world.clients) client.settle();
  world.server.door?.open();
  world.publisher.stop();
  world.walkers.stop();
  world.leaving.stop();
  world.graph?.stop();
  // What failed already fails no better for waiting.
  const publishedMs = world.wrongs.length > 0 ? FAILED_MS_MAX : PUBLISHED_MS_MAX;
  try {
    await within('every publish is acknowledged', world.publishing, publishedMs);
    await within('who is being deleted is', world.deleting, publishedMs);
    await until('everyone is welcomed', () => {
      for (const client of world.clients) client.settle();
      return world.clients.every((client) => client.isWelcomed);
    }, WELCOMED_MS_MAX);
    const last = world.random.fork('last');
    const subjects = [...world.subjects, ...world.crowd, ...world.privates, ...world.topics,
      ...world.joints, ...world.kept, ...world.leavers];
    await within('the last events are acknowledged',
      Promise.all(subjects.map((subject) => world.publisher.one(subject, last))),
      PUBLISHED_MS_MAX);
    await within('the past is read once more', world.walkers.last(world.walked),
      PUBLISHED_MS_MAX);
    await world.leaving.last();
    await world.stirring;
    await world.graph?.compare();
    await world.told?.settle();
    if (world.server.door?.forged > 0) world.wrong('door: a signature is wrong');
  } catch (error) {
    world.wrong(error.message);
  }
  const end = Date.now() + SETTLE_MS_MAX;
  for (;;) {
    for (const client of world.clients) client.settle();
    const verdict = judge(world.history);
    if (!isMissing(verdict) || Date.now() >= end || world.wrongs.length > 0) return;
    await sleep(250);
  }
}

/** What the server itself says about the first event that is missing. */
async function traceOf(world, { id, user }) {
  if (!id || !user) return undefined;
  try {
    const path = `/v1/events/${encodeURIComponent(id)}/trace?user=${user}`;
    return (await api(world.server.halley, 'GET', path, undefined, world.headers)).body;
  } catch (error) {
    return error.message;
  }
}

/**
 * Runs a round; gives `{verdict, history, wrongs, refusals, answers, trace, log}`.
 * `tick(world)` is called once a second while faults are injected.
 */
export async function runRound({ profile, random, seconds, mark, only, tick }) {
  const server = await Server.start(profile);
  const world = new World(profile, server, random, mark);
  await world.keys?.begin();
  const watch = setInterval(() => tick?.(world), 1_000);
  try {
    await world.begin();
    const endsAt = Date.now() + seconds * 1_000;
    await Promise.all([...lanesOf(profile, only)].map(([lane, faults]) =>
      runLane(world, lane, faults, endsAt)));
    await settle(world);
    const first = judge(world.history).violations[0];
    const trace = first && await traceOf(world, first);
    await within('clients and publishers end', world.end(), END_MS_MAX);
    const verdict = judge(world.history);
    return { verdict, history: world.history, wrongs: world.wrongs, refusals: world.refusals,
      answers: world.publisher.answers, followAnswers: world.follows.answers, trace,
      log: server.halley.log };
  } finally {
    clearInterval(watch);
    await world.end().catch(() => {});
    server.remove();
  }
}
