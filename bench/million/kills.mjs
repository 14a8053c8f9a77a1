// kill -9 of the brain, then of the edge, with everybody connected, while a crowd of its own is
// published to and checked for what it lost. And the end: everybody leaves.

import { kill } from '../../test/lib/halley.mjs';
import { sleep, until } from '../../test/lib/wait.mjs';
import { wrongs } from '../lib/crowd.mjs';
import { fixed, seconds, whole } from '../lib/words.mjs';
import { CROWD_CONNECTIONS, CROWD_EVENTS_PER_S, PUBLISHING_S_MAX, gather } from './everyone.mjs';
import { kernelMemory, pssOf } from './memory.mjs';
import { sumOf } from './rates.mjs';
import { Stop } from './recorder.mjs';

/** Sessions at the brain are looked at so often while they come back. */
const LOOK_MS = 100;
const RETURN_STALL_S = 45;
const SETTLE_MS = 2_000;
const SESSIONS_MS_MAX = 120_000;

const now = () => Number(process.hrtime.bigint());

/** Publishes to the crowd while `work` runs, and adds what was wrong at its end. */
export async function checked(stage, work) {
  if (stage.crowd === undefined) await gather(stage);
  const { crowd, recorder } = stage;
  await crowd.clients.ask('mark kill');
  const publishing = crowd.beginPublishing(CROWD_EVENTS_PER_S, PUBLISHING_S_MAX, CROWD_CONNECTIONS);
  await recorder.unlessStopped(sleep(SETTLE_MS));
  let result;
  let published;
  try {
    result = await work(crowd);
  } finally {
    published = await publishing.stop().catch((error) => ({ error: error.message }));
  }
  if (published.error) throw new Error(published.error);
  await crowd.expect();
  const report = await recorder.unlessStopped(crowd.caughtUp());
  return { ...result, published, crowd: { size: crowd.count, ...wrongs(report) } };
}

export const sessionsAtBrain = async (stage) => sumOf(await stage.metrics(), 'halley_sessions');

export function killBrain(stage) {
  const { plan, halley, recorder } = stage;
  return checked(stage, async (crowd) => {
    await stage.clients.ask('mark brain');
    const edge = halley.edgePid();
    const expected = plan.connections + crowd.count;
    recorder.mark('kill -9 of the brain');
    const killed = now();
    await halley.killBrain();
    await crowd.clients.ask(`flow ${process.hrtime.bigint()}`);
    await recorder.unlessStopped(stage.startAgain());
    const ready = now();
    recorder.mark(`the new brain is ready, after ${fixed(seconds(ready - killed))} s`);
    let sessions = 0;
    let last = [ready, 0];
    await recorder.unlessStopped(until('all sessions are known again', async () => {
      sessions = await sessionsAtBrain(stage);
      if (sessions > last[1]) last = [now(), sessions];
      await sleep(LOOK_MS);
      return sessions >= expected;
    }, SESSIONS_MS_MAX)).catch((error) => {
      if (error instanceof Stop) throw error; // how many there are is said below
    });
    recorder.mark(`${whole(sessions)} sessions are known again`);
    const { standing } = await crowd.until((report) =>
      report.standing.flowing >= report.connected);
    const { lost, connected } = await stage.clients.ask('report');
    const result = { ready_s: seconds(ready - killed), synced_s: seconds(last[0] - killed),
      sessions, expected, connected, dropped: lost,
      flowing_s: seconds(standing.last_flow_ns - killed), same_edge: halley.edgePid() === edge };
    stage.say(`ready after ${fixed(result.ready_s)} s, ${whole(sessions)} sessions after `
      + `${fixed(result.synced_s)} s, ${whole(lost)} connections dropped`);
    return result;
  });
}

export function killEdge(stage) {
  const { plan, halley, recorder } = stage;
  return checked(stage, async () => {
    const { clients } = stage;
    await clients.ask('mark edge');
    recorder.mark('kill -9 of the edge');
    const killed = now();
    const [old] = stage.pids.edge;
    kill(old, 'SIGKILL');
    await recorder.until('connections lost', () => -(recorder.lastOf(clients)?.connected ?? 0),
      1 - plan.connections, RETURN_STALL_S);
    // The old one closes its sockets, which takes a while, and is there until then.
    await until('another edge runs alone', () => {
      const [edge, ...others] = halley.edgePids();
      return edge !== undefined && edge !== old && others.length === 0;
    }, SESSIONS_MS_MAX).catch(async (error) => {
      throw new Error(`${error.message}. ${await stage.symptoms()}`);
    });
    const connected = () => recorder.lastOf(clients)?.connected;
    const back = (count) => recorder.until('connections after the edge was killed', connected,
      count, RETURN_STALL_S, () => stage.symptoms());
    // Edges that find the port still in use end at once: the one that serves is the one to watch.
    await back(1);
    stage.findPids();
    await back(plan.connections);
    const report = await clients.ask('report');
    const all = report.last_welcome_ns - killed;
    recorder.mark(`all are back, after ${fixed(seconds(all))} s`);
    const memory = await stage.memoryNow([clients.child.pid]);
    stage.say(`${whole(report.lost)} lost, all back after ${fixed(seconds(all))} s`);
    return { all_s: seconds(all), lost: report.lost, busy: report.busy, failed: report.failed,
      back_per_s: report.connects_per_s, memory };
  });
}

/** Everybody leaves at once: what stays resident afterwards was never given back. */
export async function leave(stage) {
  const { recorder } = stage;
  recorder.mark('everybody leaves');
  const began = now();
  recorder.forget(stage.clients);
  if (stage.crowd) recorder.forget(stage.crowd.clients);
  await recorder.unlessStopped(Promise.all([stage.clients.quit(), stage.crowd?.clients.quit()]));
  await recorder.unlessStopped(until('all sessions have ended', async () =>
    await sessionsAtBrain(stage) === 0, SESSIONS_MS_MAX));
  const took = seconds(now() - began);
  await recorder.unlessStopped(sleep(SETTLE_MS));
  return { seconds: took, brain: pssOf(stage.pids.brain), edge: pssOf(stage.pids.edge),
    kernel: kernelMemory() };
}
