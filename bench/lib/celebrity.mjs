// A subject that all follow, together with ordinary ones with 16 followers. In one run: ordinary
// traffic alone, the same while the celebrity publishes without pause, and the machine's floor for
// as many sends. Twice: as it is, and with groups switched off (docs/internals/celebrities.md).
//
// Fans and the floor's readers are scheduled as SCHED_BATCH: they share the processors with the
// senders here, and would interrupt them at every single event, which no client elsewhere does.

import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { sleep, until } from '../../test/lib/wait.mjs';
import { http } from '../../test/lib/client.mjs';
import { FOLLOWERS } from './crowd.mjs';
import { post } from './groups.mjs';
import { Clients, begin, load } from './load.mjs';
import { cpuDuring } from './process.mjs';
import { say } from './say.mjs';
import { fixed, median, whole } from './words.mjs';

/** Followers of ordinary subjects, and events about those in a second. */
const ORDINARY = 4_800;
const EVENTS_PER_S = 250;
const GROUPS = ORDINARY / FOLLOWERS;
const FLOOR_SECONDS = 4;
const STAR = 'star';

/** A follower count that nobody reaches. */
export const withoutGroups = { HALLEY_LIMITS_GROUP_FOLLOWERS_MIN: '16000000' };

export async function celebrity(halley, plan, folder) {
  const { ordinary, fans } = await connect(halley, plan, folder);
  const subject = join(folder, 'star.txt');
  writeFileSync(subject, `${STAR}\n`);
  const publish = (...args) => load('publish', '--url', halley.apiUrl, ...args);
  const rounds = [];
  for (let round = 1; round <= plan.rounds; round += 1) {
    const seconds = Math.round(plan.seconds / plan.rounds);
    const traffic = () => begin('publish', '--url', halley.apiUrl, '--subjects', `groups:${GROUPS}`,
      '--rate', `${EVENTS_PER_S}`, '--seconds', `${seconds}`);
    say(`celebrity: round ${round} of ${plan.rounds}: ordinary traffic alone`);
    await ordinary.ask('mark alone');
    await traffic().result;
    const alone = await ordinary.ask('report');
    say(`celebrity: round ${round} of ${plan.rounds}: and the celebrity without pause`);
    const end = Date.now() + seconds * 1_000;
    await ordinary.ask('mark beside');
    const background = traffic();
    const { result: shows, cpu } = await cpuDuring(halley, async () => {
      const seen = [];
      do {
        seen.push(await show(fans, plan, () =>
          publish('--subjects', `file:${subject}`, '--events', '1', '--rate', '1000')));
      } while (Date.now() < end);
      return seen;
    });
    await background.result;
    const beside = await ordinary.ask('report');
    const { bytes } = shows.at(-1);
    say(`celebrity: round ${round} of ${plan.rounds}: the floor, ${bytes} bytes a send`);
    const floor = await load('floor', '--connections', `${plan.connections}`,
      '--threads', `${plan.workers}`, '--bytes', `${bytes}`, '--seconds', `${FLOOR_SECONDS}`,
      '--sched-batch');
    rounds.push({ alone: alone.latency_ms, beside: beside.latency_ms, shows, cpu, floor });
  }
  const { body } = await http('GET', `${halley.apiUrl}/metrics`);
  await Promise.all([ordinary.quit(), fans.quit()]);
  return { rounds, metrics: body.split('\n').filter((line) => /^halley\w*_group/.test(line)) };
}

async function connect(halley, plan, folder) {
  const fan = (n) => `fan${n + 1}`;
  const all = Array.from({ length: plan.connections }, (_, n) => n);
  const lines = (line) => all.map((n) => `${line(n)}\n`).join('');
  const users = join(folder, 'fans.txt');
  writeFileSync(users, lines(fan));
  await post(`${halley.apiUrl}/v1/follows`, lines((n) => `${fan(n)} ${STAR}`));
  const graph = join(folder, 'ordinary.txt');
  await load('graph', '--groups', `${GROUPS}`, '--size', `${FOLLOWERS}`, '--out', graph);
  await post(`${halley.apiUrl}/v1/follows`, readFileSync(graph));
  const fans = new Clients('--url', halley.publicUrl, '--connections', `${plan.connections}`,
    '--users-file', users, '--sched-batch');
  const connected = await fans.ask('ready');
  say(`celebrity: ${connected.connected} fans, ${whole(connected.connects_per_s)}/s`);
  const ordinary = new Clients('--url', halley.publicUrl, '--connections', `${ORDINARY}`);
  await ordinary.ask('ready');
  await filled(halley, plan);
  return { ordinary, fans };
}

/** Until all fans are members, or nobody is going to be. */
async function filled(halley, plan) {
  const members = async () => {
    const { body } = await http('GET', `${halley.apiUrl}/metrics`);
    return Number(/^halley_group_members (\d+)$/m.exec(body)?.[1] ?? 0);
  };
  // Longer than the census takes to find the celebrity.
  await sleep(4_000);
  await until('all fans to be members, or none', async () => {
    const now = await members();
    return now >= plan.connections || now === 0;
  }, plan.patience * 1_000);
}

/** One event for all fans: from its publishing to the first and to the last of them. */
async function show(fans, plan, publish) {
  await fans.ask('mark show');
  const published = await publish();
  const seen = await fans.until(({ events }) => events >= plan.connections, plan.patience);
  const span = (seen.last_event_ns - seen.first_event_ns) / 1e6;
  const last = seen.latency_ms.max;
  return { answer_ms: published.latency_ms?.max, first_ms: last - span, last_ms: last,
    events: seen.events, bytes: Math.round(seen.bytes / seen.events) };
}

/** The same figures of the run without groups. */
export const lookedUpRows = (plan, result) => celebrityRows(plan, result, 'groups switched off');

export function celebrityRows(plan, { rounds }, how = 'fans are a group') {
  const shows = rounds.flatMap((round) => round.shows);
  const of = (name) => shows.map((one) => one[name]);
  const ideal = rounds.map(({ floor }) => (plan.connections / floor.sends_per_s) * 1_000);
  const last = rounds.map((round) => median(round.shows.map((one) => one.last_ms)));
  const p99 = (which) => fixed(median(rounds.map((round) => round[which].p99)));
  const missing = shows.reduce((sum, { events }) => sum + Math.abs(plan.connections - events), 0);
  return [
    [`**A celebrity: ${how}**`, `${whole(plan.connections)} fans on ${plan.workers} workers, `
      + `${whole(ORDINARY)} others`, ''],
    ['publish to first fan', `${fixed(median(of('first_ms')))} ms`, ''],
    ['publish to last fan, median and longest',
      `${whole(median(of('last_ms')))}, ${whole(Math.max(...of('last_ms')))} ms`,
      '100,000: ≤ 500 ms'],
    ['floor: as many bare sends', `${whole(median(ideal))} ms`, ''],
    ['**last fan to floor**', fixed(median(last.map((ms, i) => ms / ideal[i]))), '≤ 1.3'],
    ['fans without the event, or with two', whole(missing), '0'],
    ['processor seconds per million: brain + edge', ['brain', 'edge'].map((side) =>
      fixed(median(rounds.map(({ cpu, shows: s }) =>
        (cpu[side] / (s.length * plan.connections)) * 1e6)))).join(' + '), ''],
    ['ordinary p99, alone', `${p99('alone')} ms`, ''],
    ['ordinary p99, while the celebrity publishes without pause', `${p99('beside')} ms`, ''],
  ];
}
