// The article's test of a day: 10,000 clients, 1,000 messages a second, each to one of them at
// random. Does memory stay where it is?

import { sleep } from '../../test/lib/wait.mjs';
import { begin } from '../lib/load.mjs';
import { fixed, whole } from '../lib/words.mjs';
import { connectClients } from './connect.mjs';

const STALL_S = 30;
/** Until the history has all events of its retention of 10 minutes, memory must grow. */
const GROWING_S = 900;
const CONNECTIONS = 32;
const HOUR_S = 3_600;

/** metabrew.com/article/a-million-user-comet-application-with-mochiweb-part-2 */
const ARTICLE = 'A Million-user Comet Application with Mochiweb, part 2 (2008)';
/** Its log of the first minutes, before its processes hibernated: seconds, KB as it prints them. */
const ARTICLE_LOG = [
  [1224518244, 40388], [1224518305, 41120], [1224518367, 65252], [1224518432, 89008],
  [1224518497, 90748], [1224518561, 90964], [1224518626, 90964], [1224518691, 90964],
  [1224518755, 90980], [1224518820, 91120], [1224518885, 98664], [1224518950, 106752],
  [1224519015, 114044], [1224519080, 119468], [1224519145, 125360],
];
/** "The mochiweb application memory is aligned to 78 MB with 10 k connections", with hibernate. */
const ARTICLE_LEVEL_BYTES = 78e6;

/** The article's curves over the length of this run. */
export function references(lengthS) {
  const [first] = ARTICLE_LOG[0];
  const log = ARTICLE_LOG.map(([t, kilobytes]) => [t - first, kilobytes * 1_000]);
  return [
    { label: `${ARTICLE}: level over 24 hours, with hibernate`,
      points: [[0, ARTICLE_LEVEL_BYTES], [lengthS, ARTICLE_LEVEL_BYTES]] },
    { label: 'its log of the first 15 minutes, without',
      points: log.filter(([t]) => t <= lengthS) },
  ];
}

export async function connect(stage) {
  const { plan, recorder } = stage;
  stage.clients = connectClients(stage, plan.connections);
  recorder.watch(stage.clients);
  await recorder.until('connections', () => recorder.lastOf(stage.clients)?.connected,
    plan.connections, STALL_S, () => stage.symptoms());
  return { memory: await stage.memoryNow([stage.clients.child.pid]) };
}

export async function soak(stage) {
  const { plan, halley, recorder } = stage;
  await stage.clients.ask('mark soak');
  recorder.mark(`${whole(plan.rate)} events/s for ${minutes(plan.length_s)} minutes`);
  const from = recorder.seconds;
  const publishing = begin('publish', '--url', halley.apiUrl, '--rate', `${plan.rate}`,
    '--seconds', `${plan.length_s}`, '--connections', `${CONNECTIONS}`,
    '--subjects', `uniform:1-${plan.connections}`);
  const published = await publishing.result;
  await sleep(1_000);
  const received = await stage.clients.ask('report');
  return { published, received, ...flatness(recorder.samples, from, plan.length_s) };
}

/** Lines through the server's memory, once it has stopped to grow for a reason. */
function flatness(samples, from, lengthS) {
  const skipS = Math.min(GROWING_S, lengthS / 2);
  const seen = samples.filter(({ t_s: t }) => t > from + skipS && t <= from + lengthS);
  const line = (value) => leastSquares(seen.map(({ t_s: t, memory_bytes: bytes }) =>
    [t / HOUR_S, value(bytes)]));
  return { skipped_s: skipS, fitted_s: lengthS - skipS,
    both: line(({ brain, edge }) => brain + edge),
    brain: line(({ brain }) => brain), edge: line(({ edge }) => edge) };
}

const minutes = (seconds) => fixed(seconds / 60, seconds < 600 ? 1 : 0);

/** A line through points: its level in the middle, its slope, and the slope's standard error. */
export function leastSquares(points) {
  const mean = (of) => points.reduce((sum, point) => sum + of(point), 0) / points.length;
  const [x, y] = [mean((point) => point[0]), mean((point) => point[1])];
  const spread = mean((point) => (point[0] - x) ** 2);
  const slope = mean((point) => (point[0] - x) * (point[1] - y)) / spread;
  const residual = mean((point) => (point[1] - y - slope * (point[0] - x)) ** 2);
  const values = points.map((point) => point[1]);
  return { level: y, slope, points: points.length,
    standard_error: Math.sqrt(residual / spread / Math.max(1, points.length - 2)),
    least: Math.min(...values), most: Math.max(...values) };
}

export function soakRows(plan, { connect: connected, soak: result }) {
  const mb = (bytes, digits = 1) => `${fixed(bytes / 1e6, digits)} MB`;
  if (connected === undefined) return [];
  const { brain, edge } = connected.memory;
  const idle = ['brain + edge (PSS), connected and idle',
    `${mb(brain)} + ${mb(edge)} = ${mb(brain + edge)}`, 'the article: 78 MB'];
  if (result === undefined) return [idle];
  const { published, received, both, skipped_s: skipped, fitted_s: fitted } = result;
  const line = ({ slope, standard_error: error }) =>
    `${fixed(slope / 1e6, 3)} ± ${fixed(error / 1e6, 3)} MB per hour`;
  const { latency_ms: ms } = received;
  return [
    ['connections', whole(received.connected), whole(plan.connections)],
    ['connections lost', whole(received.lost), '0'],
    ['events published, deliveries', `${whole(published.accepted)}, ${whole(received.events)}`, ''],
    ['publish to receipt p50 / p99 / p99.9 / longest',
      `${[ms.p50, ms.p99, ms.p99_9, ms.max].map((value) => fixed(value)).join(' / ')} ms`, ''],
    idle,
    [`brain + edge (PSS) of the last ${minutes(fitted)} minutes: mean, least, most`,
      [both.level, both.least, both.most].map((bytes) => mb(bytes)).join(', '), ''],
    [`slope of these, the first ${minutes(skipped)} minutes left out: brain + edge`, line(both),
      'flat'],
    ['the same: brain; edge', `${line(result.brain)}; ${line(result.edge)}`, ''],
  ];
}
