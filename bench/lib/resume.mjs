// All come back at once. `resume`: each has missed a hundred events. `storm`: each has missed few,
// but all come, because they left by themselves (others stay: what do they notice?), because the
// edge was killed, or because both were.

import { isAlive, kill } from '../../test/lib/halley.mjs';
import { sleep, until } from '../../test/lib/wait.mjs';
import { Crowd, metrics, sumWrongs, wrongs } from './crowd.mjs';
import { cpuDuring } from './process.mjs';
import { say } from './say.mjs';
import { latencies, median, middleAndMost, seconds, whole, wrongRows } from './words.mjs';

const LIVE_USERS = 1_000;
/** Events a second about what the live users follow, and about what the returning ones do. */
const LIVE_EVENTS_PER_S = 250;
const MEANWHILE_EVENTS_PER_S = 200;
/** Of the live users' latency before the others come. */
const QUIET_MS = 3_000;
const SETTLE_MS = 1_500;
const PUBLISH_SECONDS_MAX = 600;
const REPLAYED = 'halley_replayed_events_total';

export async function resume(halley, plan, folder) {
  const { crowd, live, connected } = await gather(halley, plan, folder);
  const rounds = [];
  for (let round = 1; round <= plan.rounds; round += 1) {
    say(`resume: round ${round} of ${plan.rounds}: all leave, ${plan.behind} events for each`);
    rounds.push(await comeBack(halley, plan, crowd, live, plan.behind));
    const { caught_up_s: took, wrong } = rounds.at(-1);
    say(`resume: caught up after ${took.toFixed(2)} s, ${JSON.stringify(wrong)}`);
  }
  await Promise.all([crowd.clients.quit(), live.clients.quit()]);
  return { connected, rounds, wrong: sumWrongs(rounds.map(({ wrong }) => wrong)) };
}

export async function storm(halley, plan, folder) {
  const { crowd, live, connected } = await gather(halley, plan, folder);
  const left = [];
  const edge = [];
  const both = [];
  for (let round = 1; round <= plan.rounds; round += 1) {
    const which = `storm: round ${round} of ${plan.rounds}`;
    say(`${which}: all leave and come back`);
    left.push(await comeBack(halley, plan, crowd, live, 1));
    say(`${which}: kill -9 of the edge`);
    edge.push(await killed(crowd, async () => {
      const pid = halley.edgePid();
      kill(pid, 'SIGKILL');
      await until('the edge is gone', () => !isAlive(pid));
    }));
    say(`${which}: kill -9 of edge and brain`);
    both.push(await killed(crowd, async () => {
      const pid = halley.edgePid();
      await halley.killBrain();
      kill(pid, 'SIGKILL');
      await until('the edge is gone', () => halley.edgePids().length === 0);
      await halley.start();
    }));
    const [took, wrong] = [both.at(-1).connected_s, JSON.stringify(both.at(-1).wrong)];
    say(`${which}: all there after ${took.toFixed(2)} s, ${wrong}`);
  }
  await Promise.all([crowd.clients.quit(), live.clients.quit()]);
  return { connected, left, edge, both,
    wrong: sumWrongs([...left, ...edge, ...both].map(({ wrong }) => wrong)) };
}

/** The crowd that will leave and the one that stays, connected, each with a cursor. */
async function gather(halley, plan, folder) {
  const crowd = await Crowd.make(halley, plan, folder, 'u', plan.connections);
  const live = await Crowd.make(halley, plan, folder, 'v', Math.min(LIVE_USERS, plan.connections));
  const connected = await crowd.connect();
  await live.connect();
  for (const each of [crowd, live]) {
    await each.publishEach(1);
    await each.expect();
    const report = await each.caughtUp();
    if (report.standing.owed > 0) throw new Error(`${report.standing.owed} events didn't come`);
  }
  return { crowd, live, connected };
}

/** All of the crowd leave, events come for each, all come back; the live ones are listened to. */
async function comeBack(halley, plan, crowd, live, events) {
  const { clients } = crowd;
  const perS = plan['return-rate'] > 0 ? ` ${plan['return-rate']}` : '';
  await clients.ask('drop');
  const filled = await crowd.publishEach(events);
  await crowd.expect();
  await sleep(SETTLE_MS);

  const forLive = live.beginPublishing(LIVE_EVENTS_PER_S, PUBLISH_SECONDS_MAX);
  await sleep(SETTLE_MS);
  await live.clients.ask('mark quiet');
  await sleep(QUIET_MS);
  const quiet = (await live.clients.ask('report')).latency_ms;

  await Promise.all([clients.ask('mark return'), live.clients.ask('mark return')]);
  const before = await metrics(halley);
  // What is published during the replay is where a hole would be.
  const forCrowd = crowd.beginPublishing(MEANWHILE_EVENTS_PER_S, PUBLISH_SECONDS_MAX);
  const { result: { at, back }, cpu } = await cpuDuring(halley, async () => {
    const { at_ns: returned } = await clients.ask(`return cursors${perS}`);
    return { at: returned, back: await crowd.caughtUp() };
  });
  const during = (await live.clients.ask('report')).latency_ms;
  const after = await metrics(halley);
  await forCrowd.stop();
  await forLive.stop();

  await Promise.all([crowd.expect(), live.expect()]);
  const [all, stayed] = [await crowd.caughtUp(), await live.caughtUp()];
  return {
    filled, cpu, quiet, during, back, busy: back.busy, refused: back.refused,
    connected: back.connected, connected_s: allConnected(crowd, back, at),
    caught_up_s: back.standing.owed === 0
      ? seconds(Math.max(back.standing.last_caught_up_ns, at) - at) : Infinity,
    replayed: (after[REPLAYED] ?? 0) - (before[REPLAYED] ?? 0),
    wrong: wrongs(all), live_wrong: wrongs(stayed),
  };
}

/** A fault that takes the connections with it, while events are published. */
async function killed(crowd, fault) {
  const { clients } = crowd;
  const publishing = crowd.beginPublishing(MEANWHILE_EVENTS_PER_S, PUBLISH_SECONDS_MAX);
  await sleep(SETTLE_MS);
  await clients.ask('mark killed');
  const at = Number(process.hrtime.bigint());
  await fault();
  const back = await crowd.until(({ lost, last_welcome_ns: last }) => lost > 0 && last > at);
  await publishing.stop();
  await crowd.expect();
  const all = await crowd.caughtUp();
  return { back, busy: back.busy, refused: back.refused, connected: back.connected,
    dropped: back.lost, connected_s: allConnected(crowd, back, at), wrong: wrongs(all) };
}

/** Seconds until the last welcome; for ever if some are still away. */
function allConnected(crowd, { connected, last_welcome_ns: last }, at) {
  return connected === crowd.count ? seconds(last - at) : Infinity;
}

const times = (rounds, name) => middleAndMost(rounds.map((round) => round[name]));
const busy = (rounds) => whole(median(rounds.map(({ busy: told, refused }) =>
  told + (refused[503] ?? 0))));
const p99 = 'p50 / p99';

function liveRows(rounds) {
  return [
    [`live ${p99} before`, latencies(rounds.map(({ quiet }) => quiet)), ''],
    [`live ${p99} meanwhile`, latencies(rounds.map(({ during }) => during)), 'p99 ≤ 100 ms'],
    ['events the live users lost', whole(rounds.at(-1).live_wrong.lost), '0'],
  ];
}

export function resumeRows(plan, { rounds, wrong }) {
  const cost = (side) => median(rounds.map(({ cpu }) => cpu[side])).toFixed(2);
  return [
    ['**All come back behind**',
      `${whole(plan.connections)} users, each ${whole(plan.behind)} events`, ''],
    ['return to all connected', `${times(rounds, 'connected_s')} s`, ''],
    ['return to all caught up', `${times(rounds, 'caught_up_s')} s`, '≤ 10 s'],
    ['events replayed', whole(median(rounds.map(({ replayed }) => replayed))), ''],
    ['told to come back later', busy(rounds), ''],
    ['processor time, brain + edge', `${cost('brain')} + ${cost('edge')} s`, ''],
    ...liveRows(rounds),
    ...wrongRows(wrong),
  ];
}

export function stormRows(plan, { left, edge, both, wrong }) {
  return [
    ['**All come back**', `${whole(plan.connections)} users with cursors`, ''],
    ['all left by themselves: return to all connected', `${times(left, 'connected_s')} s`, ''],
    ['the same: told to come back later', busy(left), ''],
    ...liveRows(left),
    ['kill -9 of the edge to all connected', `${times(edge, 'connected_s')} s`, ''],
    ['the same: told to come back later', busy(edge), ''],
    ['kill -9 of edge and brain to all connected', `${times(both, 'connected_s')} s`, ''],
    ['the same: told to come back later', busy(both), ''],
    ...wrongRows(wrong),
  ];
}
