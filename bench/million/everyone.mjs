// A celebrity: one publish to a subject that very many connected users follow, and what others
// notice of it meanwhile.
//
// The others are a crowd of their own who follow none of the celebrities; their clients check that
// nothing is lost or late, here and when brain and edge are killed (kills.mjs).

import { closeSync, openSync, writeFileSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { sleep, until } from '../../test/lib/wait.mjs';
import { Crowd } from '../lib/crowd.mjs';
import { upload } from '../lib/graph.mjs';
import { load } from '../lib/load.mjs';
import { fixed, seconds, whole } from '../lib/words.mjs';

const ROUNDS = 3;
const CROWD = 1_600;
/** Events per second for the crowd: 3,200 deliveries. */
export const CROWD_EVENTS_PER_S = 200;
export const CROWD_CONNECTIONS = 64;
const FEW = 100_000;
/** For the last of all deliveries. */
const DELIVERY_MS_MAX = 60_000;
/** For the crowd's publishing, which is stopped before. */
export const PUBLISHING_S_MAX = 600;
/** Lines that are written to a file at a time. */
const LINES = 50_000;

function writeFollows(path, followers, subject) {
  const file = openSync(path, 'w');
  for (let first = 1; first <= followers; first += LINES) {
    const count = Math.min(LINES, followers - first + 1);
    writeSync(file, Array.from({ length: count }, (_, i) => `${first + i} ${subject}\n`).join(''));
  }
  closeSync(file);
}

/** Connects the crowd. */
export async function gather(stage) {
  const { halley, plan, folder, recorder } = stage;
  const count = Math.min(CROWD, plan.connections);
  const crowdPlan = { patience: plan.patience };
  stage.crowd = await recorder.unlessStopped(Crowd.make(halley, crowdPlan, folder, 'by', count));
  await recorder.unlessStopped(stage.crowd.connect());
  recorder.watch(stage.crowd.clients);
  await stage.crowd.publishEach(1);
}

/** Publishes one event about `subject` and waits until all followers have it. */
async function publishOnce(stage, subject, followers) {
  const { clients, folder, halley, recorder } = stage;
  const file = join(folder, 'celebrity.txt');
  writeFileSync(file, `${subject}\n`);
  await clients.ask('mark celebrity');
  await stage.crowd.clients.ask('mark meanwhile');
  const published = await recorder.unlessStopped(load('publish', '--url', halley.apiUrl,
    '--closed', '--events', '1', '--connections', '1', '--seconds', '30',
    '--subjects', `file:${file}`));
  let report;
  await recorder.unlessStopped(until(`${followers} deliveries`, async () => {
    report = await clients.ask('report');
    return report.events >= followers;
  }, DELIVERY_MS_MAX)).catch(() => {}); // what is missing is in the report
  const due = published.first_due_ns;
  return { received: report.events, first_s: seconds(report.first_event_ns - due),
    last_s: seconds(report.last_event_ns - due), sessions: published.sessions,
    meanwhile: (await stage.crowd.clients.ask('report')).latency_ms };
}

export async function everyone(stage) {
  const { plan, halley, recorder, folder } = stage;
  await gather(stage);
  const publishing = stage.crowd.beginPublishing(CROWD_EVENTS_PER_S, PUBLISHING_S_MAX,
    CROWD_CONNECTIONS);
  try {
    await stage.crowd.clients.ask('mark before');
    await recorder.unlessStopped(sleep(plan.settle_ms));
    const before = (await stage.crowd.clients.ask('report')).latency_ms;
    const few = Math.min(FEW, Math.ceil(plan.connections / 10));
    const celebrities = [];
    for (const followers of [few, plan.connections]) {
      const subject = `celebrity-${followers}`;
      const file = join(folder, 'celebrity-follows.txt');
      writeFollows(file, followers, subject);
      await recorder.unlessStopped(upload(halley, file));
      await recorder.unlessStopped(sleep(plan.settle_ms));
      const rounds = [];
      for (let round = 0; round < ROUNDS; round += 1) {
        recorder.mark(`one event for ${whole(followers)} followers`);
        rounds.push(await publishOnce(stage, subject, followers));
        const { first_s: first, last_s: last, meanwhile } = rounds.at(-1);
        stage.say(`first after ${fixed(first * 1e3, 1)} ms, last after ${fixed(last * 1e3, 1)} ms; `
          + `others' p99 ${fixed(meanwhile.p99, 1)} ms`);
        await recorder.unlessStopped(sleep(plan.settle_ms / 4));
      }
      celebrities.push({ followers, rounds });
    }
    return { before, celebrities };
  } finally {
    stage.published = await publishing.stop().catch((error) => ({ error: error.message }));
  }
}
