// kill -9 of the brain, again and again, with a big store, while events are published and many are
// connected: no connection drops, nothing is lost, and how long is the silence?

import { sleep, until } from '../../test/lib/wait.mjs';
import { Crowd, wrongs } from './crowd.mjs';
import { importGraph } from './graph.mjs';
import { pssBytes } from './process.mjs';
import { say } from './say.mjs';
import { middleAndMost, seconds, whole, wrongRows } from './words.mjs';

/** Each of 938 subjects gets an event twice a second. */
const EVENTS_PER_S = 2_000;
/** Publishers stay on their request while the brain is away, so as many as what is due then. */
const CONNECTIONS = 256;
/** Between two kills: this and up to as much again, so that they hit anything. */
const PAUSE_MS = 1_000;

export async function restart(halley, plan, folder) {
  const { imported } = await importGraph(halley, plan, folder);
  const crowd = await Crowd.make(halley, plan, folder, 'u', plan.connections);
  await crowd.connect();
  const { clients } = crowd;
  say(`restart: ${plan.connections} connected, ${plan.users} users in the store`);
  await crowd.publishEach(1);
  const edge = halley.edgePid();
  const secondsMax = plan.kills * (plan.patience + 10);
  const publishing = crowd.beginPublishing(EVENTS_PER_S, secondsMax, CONNECTIONS);
  await sleep(2 * PAUSE_MS);
  await clients.ask('mark restart');
  const kills = [];
  for (let count = 1; count <= plan.kills; count += 1) {
    kills.push(await killBrain(halley, crowd));
    const { first_s: first, all_s: all, flowing } = kills.at(-1);
    say(`restart: kill ${count} of ${plan.kills}: first event after ${first.toFixed(2)} s, `
      + `all ${flowing} after ${all.toFixed(2)} s`);
    if (flowing < plan.connections) break;
    await sleep(PAUSE_MS * (1 + Math.random()));
  }
  const published = await publishing.stop();
  await crowd.expect();
  const report = await crowd.caughtUp();
  const brain = pssBytes(halley.brainPid());
  const sameEdge = halley.edgePid() === edge;
  await clients.quit();
  return { imported, kills, published, report, brain_bytes: brain, same_edge: sameEdge,
    dropped: report.lost, wrong: wrongs(report) };
}

/** Kills the brain, starts another, and waits until everybody gets what was published since. */
async function killBrain(halley, crowd) {
  const at = Number(process.hrtime.bigint());
  await halley.killBrain();
  // What was due before may have been delivered by the brain that was killed.
  await crowd.clients.ask(`flow ${process.hrtime.bigint()}`);
  await halley.start();
  const ready = Number(process.hrtime.bigint());
  const { standing, connected } = await crowd.until((report) =>
    report.standing.flowing >= report.connected);
  const after = (ns) => (ns > 0 ? seconds(ns - at) : Infinity);
  return { ready_s: seconds(ready - at), first_s: after(standing.first_flow_ns),
    all_s: standing.flowing >= connected ? after(standing.last_flow_ns) : Infinity,
    flowing: standing.flowing, connected };
}

export function restartRows(plan, { kills, published, dropped, same_edge: same, wrong }) {
  const took = (name) => `${middleAndMost(kills.map((one) => one[name]))} s`;
  return [
    ['**kill -9 of the brain**', `${whole(kills.length)} times, ${whole(plan.connections)} `
      + `sessions, ${whole(plan.users)} users in the store`, ''],
    ['kill to ready', took('ready_s'), ''],
    ['kill to the first event delivered again', took('first_s'), '≤ 5 s'],
    ['kill to events flowing to all', took('all_s'), ''],
    ['connections dropped', whole(dropped), '0'],
    ['the edge lived through it', same ? 'yes' : 'no', 'yes'],
    ['events published meanwhile', whole(published.accepted), ''],
    ...wrongRows(wrong),
  ];
}
