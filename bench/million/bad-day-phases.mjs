// The phases of a bad day: clients connect while single POSTs go on, then the brain dies while a
// herd of clients drops and returns at once.

import { sleep, until } from '../../test/lib/wait.mjs';
import { Clients, begin, load } from '../lib/load.mjs';
import { fixed, seconds, whole } from '../lib/words.mjs';
import { checked, sessionsAtBrain } from './kills.mjs';
import { sumOf } from './rates.mjs';
import { Stop } from './recorder.mjs';

/** Of all clients, those that drop while the brain is away. */
const HERD_SHARE = 0.1;
/** As in connect.mjs. */
const PAUSE_MS = '4';
/** Both processes together from one address; check.mjs has the most. The crowd comes from one. */
const SOURCE_CONNECTIONS = 9_000;
/** Connects that make no headway for so long won't. */
const STALL_S = 60;
/** Open loop: enough connections that a publisher waits for none. */
const POST_CONNECTIONS = '256';
/** Closed loop, as in rates.mjs. */
const CLOSED = ['--closed', '--connections', '64'];
/** For a publisher that is stopped before. */
const POSTS_S_MAX = '1800';
const LOOK_MS = 100;
const SESSIONS_MS_MAX = 120_000;
/** What the edge counts where it refuses a stream or a request. */
const REFUSALS = ['busy', 'brain_away', 'unavailable', 'refused_connections', 'rate_by_address',
  'pending_connections_dropped'];

const now = () => Number(process.hrtime.bigint());

/** Single events about users drawn evenly. */
const posts = ({ plan, halley }, lengthS, ...pace) => ['publish', '--url', halley.apiUrl,
  '--sched-batch', '--subjects', `uniform:1-${plan.connections}`, '--seconds', `${lengthS}`,
  ...pace];
const steadyPace = ({ posts_per_s: rate }) =>
  ['--rate', `${rate}`, '--connections', POST_CONNECTIONS];

/** Publishes at the plan's rate until `stop`, which gives the figures. */
function beginPosts(stage) {
  const publishing = begin(...posts(stage, POSTS_S_MAX, ...steadyPace(stage.plan)));
  publishing.result.catch(() => {}); // read by whoever stops it
  return publishing;
}

/** What is shown of a publisher: how many were taken, refused, and when clients had the answer. */
function figuresOf({ accepted, refused, requests, requests_broken: broken,
  requests_unsent: unsent, first_due_ns: first, last_answer_ns: last, latency_ms: latency }) {
  const took = seconds(last - first);
  return { accepted, refused, broken, unsent, requests, seconds: took,
    per_s: took > 0 ? accepted / took : 0, latency_ms: latency };
}

const told = ({ per_s: perS, latency_ms: { p50, p99 } }) =>
  `${whole(perS)} POSTs/s, p50 ${fixed(p50, 1)}, p99 ${fixed(p99, 1)} ms`;

async function refusalsOf(stage) {
  const values = await stage.metrics();
  return Object.fromEntries(REFUSALS.map((name) =>
    [name, sumOf(values, `halley_edge_${name}_total`)]));
}

const minus = (after, before) =>
  Object.fromEntries(Object.entries(after).map(([name, value]) => [name, value - before[name]]));

/** Users `first`, … of so many connections, opened at the plan's rate by their share of all. */
function connectPart(stage, first, count, ...more) {
  const { plan, halley } = stage;
  const rate = (plan.opens_per_s * count) / plan.connections;
  // The same addresses for both parts, evenly: a part of its own would take them from the first on.
  const sources = Math.ceil(plan.connections / SOURCE_CONNECTIONS);
  return new Clients('--url', halley.publicUrl, '--connections', `${count}`,
    '--users', `${first}:${count}`, '--sources', `${sources}`, '--rate', `${rate}`,
    '--opening', `${count}`,
    '--reconnect', '--sched-batch', '--pause-ms', PAUSE_MS, ...more);
}

/** Processors' worth of time by part, on average over the samples of the phase. */
function processorsOf(recorder, phase) {
  const samples = recorder.samples.filter((sample) => sample.phase === phase);
  const parts = [...new Set(samples.flatMap(({ cpu }) => Object.keys(cpu)))];
  const mean = (part) =>
    samples.reduce((sum, { cpu }) => sum + (cpu[part] ?? 0), 0) / samples.length;
  return Object.fromEntries(parts.map((part) => [part, mean(part)]));
}

const welcomeOf = ({ connected, welcome_ms: welcome, failed, busy, lost }) =>
  ({ connected, welcome_ms: welcome, failed, busy, lost });

/** All connect at the plan's rate; single POSTs go on from the first moment. */
export async function opening(stage) {
  const { plan, recorder } = stage;
  const herd = Math.ceil(plan.connections * HERD_SHARE);
  const steady = plan.connections - herd;
  const before = await refusalsOf(stage);
  const publishing = beginPosts(stage);
  recorder.mark(`${whole(plan.connections)} clients begin to connect, `
    + `${whole(plan.opens_per_s)} per second`);
  const began = now();
  stage.clients = connectPart(stage, 1, steady);
  stage.herd = connectPart(stage, steady + 1, herd, '--cursors');
  for (const clients of [stage.clients, stage.herd]) recorder.watch(clients);
  const connected = () => [stage.clients, stage.herd].reduce((sum, clients) =>
    sum + (recorder.lastOf(clients)?.connected ?? 0), 0);
  await recorder.until('connections', connected, plan.connections, STALL_S,
    () => stage.symptoms());
  const published = figuresOf(await publishing.stop());
  const [first, second] = [await stage.clients.ask('report'), await stage.herd.ask('report')];
  const took = seconds(Math.max(first.last_welcome_ns, second.last_welcome_ns) - began);
  const refusals = minus(await refusalsOf(stage), before);
  const result = { seconds: took, opened_per_s: plan.connections / took, published,
    steady: welcomeOf(first), herd: welcomeOf(second), refusals,
    processors: processorsOf(recorder, 'opening') };
  recorder.mark(`all connected, ${whole(result.opened_per_s)} per second`);
  stage.say(`meanwhile ${told(published)}`);
  return result;
}

/** Single POSTs: at the plan's rate, then as many as are answered. */
export async function afterwards(stage) {
  const { plan, recorder } = stage;
  const stretch = async (...pace) => {
    const figures = figuresOf(await recorder.unlessStopped(
      load(...posts(stage, plan.seconds, ...pace))));
    stage.say(told(figures));
    return figures;
  };
  recorder.mark('single POSTs just afterwards');
  const paced = await stretch(...steadyPace(plan));
  recorder.mark('single POSTs, as many as are answered');
  return { paced, most: await stretch(...CLOSED) };
}

/** kill -9 of the brain, and at the same moment the herd drops and returns. */
export function badMoment(stage) {
  const { plan, halley, recorder } = stage;
  return checked(stage, async (crowd) => {
    await stage.clients.ask('mark bad');
    await stage.herd.ask('mark bad');
    const before = await refusalsOf(stage);
    const edge = halley.edgePid();
    const steady = plan.connections + crowd.count - Math.ceil(plan.connections * HERD_SHARE);
    const expected = plan.connections + crowd.count;
    const publishing = beginPosts(stage);
    await recorder.unlessStopped(sleep(plan.settle_ms));
    recorder.mark('kill -9 of the brain; a tenth of the clients drop and return');
    const killed = now();
    await Promise.all([halley.killBrain(), stage.herd.ask('return cursors')]);
    await crowd.clients.ask(`flow ${process.hrtime.bigint()}`);
    await recorder.unlessStopped(stage.startAgain());
    const ready = now();
    const away = figuresOf(await publishing.stop());
    const returning = beginPosts(stage);
    recorder.mark(`the new brain is ready, after ${fixed(seconds(ready - killed))} s`);
    const known = await comeBack(stage, steady, expected);
    const { standing } = await crowd.until((report) =>
      report.standing.flowing >= report.connected);
    const herd = await recorder.unlessStopped(stage.herd.until((report) =>
      report.connected >= Math.ceil(plan.connections * HERD_SHARE), plan.patience));
    // So that the figures are those of some seconds at least.
    await recorder.unlessStopped(sleep(plan.settle_ms));
    const published = figuresOf(await returning.stop());
    const after = (ns) => (ns > 0 ? seconds(ns - killed) : null);
    const result = { ready_s: after(ready), steady_s: after(known.steady_ns),
      all_s: after(known.all_ns), sessions: known.sessions, expected,
      flowing_s: after(standing.last_flow_ns), herd_s: after(herd.last_welcome_ns),
      herd: { ...welcomeOf(herd), first_problem: herd.first_problem },
      steady: welcomeOf(await stage.clients.ask('report')), posts: published, away,
      same_edge: halley.edgePid() === edge, refusals: minus(await refusalsOf(stage), before),
      processors: processorsOf(recorder, 'badMoment') };
    stage.say(`ready after ${fixed(result.ready_s)} s, ${whole(known.sessions)} of `
      + `${whole(expected)} sessions known after ${fixed(result.all_s ?? NaN)} s, `
      + `the herd back after ${fixed(result.herd_s ?? NaN)} s; ${told(published)}`);
    return result;
  });
}

/** Waits until the brain knows all sessions; says when it knew those that stayed, and all. */
async function comeBack(stage, steady, expected) {
  const known = { sessions: 0, steady_ns: 0, all_ns: 0 };
  await stage.recorder.unlessStopped(until('all sessions are known again', async () => {
    known.sessions = await sessionsAtBrain(stage).catch(() => 0);
    if (known.steady_ns === 0 && known.sessions >= steady) known.steady_ns = now();
    if (known.sessions >= expected) known.all_ns = now();
    else await sleep(LOOK_MS);
    return known.all_ns > 0;
  }, SESSIONS_MS_MAX)).catch((error) => {
    if (error instanceof Stop) throw error; // how many there are is said by the result
  });
  stage.recorder.mark(`${whole(known.sessions)} sessions are known again`);
  return known;
}

/** Single POSTs at the plan's rate, when it is over. */
export async function recovered(stage) {
  const { plan, recorder } = stage;
  const figures = figuresOf(await recorder.unlessStopped(
    load(...posts(stage, plan.seconds, ...steadyPace(plan)))));
  stage.say(told(figures));
  // Everybody leaves by one list of clients.
  recorder.forget(stage.herd);
  await stage.herd.quit();
  return figures;
}
