// The table of a bad day: what, reached, asked.

import { fixed, whole } from '../lib/words.mjs';
import { crowdRow } from './rows.mjs';

const HEAD = { opening: '**Clients connect while events are published**',
  afterwards: '**Just afterwards**',
  badMoment: '**kill -9 of the brain, and a tenth of the clients drop and return**',
  recovered: '**When it is over**' };
/** The goal of a return (contract.md), and of an answer on a bad day. */
const KNOWN_ASKED = '≤ 10 s';
const ANSWER_ASKED = 'p99 ≤ 1,000 ms';

const ms = ({ p50, p99, max }) => `${fixed(p50, 1)} / ${fixed(p99, 1)} / ${fixed(max, 1)} ms`;
const after = (value) => (value === null ? 'never' : `${fixed(value)} s`);
const counted = (counts) => Object.entries(counts).filter(([, count]) => count > 0)
  .map(([name, count]) => `${name} ${whole(count)}`).join(', ') || 'none';
const used = (processors) => Object.entries(processors)
  .map(([part, value]) => `${part} ${fixed(value, 2)}`).join(', ');

const postRows = (figures, asked) => [
  ['single POSTs/s', whole(figures.per_s), asked],
  ['the same: p50 / p99 / longest until the answer', ms(figures.latency_ms), ANSWER_ASKED],
  ...figures.refused + figures.broken + figures.unsent > 0 ? [['refused, unanswered, not sent',
    [figures.refused, figures.broken, figures.unsent].map(whole).join(', '), '']] : [],
];

const openingRows = (plan, { opening }) => [
  ['opened per second', whole(opening.opened_per_s), `${whole(plan.opens_per_s)}`],
  ['connect to welcome p50 / p99 / longest', ms(opening.steady.welcome_ms), ''],
  ...postRows(opening.published, whole(plan.posts_per_s)),
  ['clients that were refused, told to come back later', `${whole(opening.steady.failed
    + opening.herd.failed)}, ${whole(opening.steady.busy + opening.herd.busy)}`, '0, 0'],
  ['refusals that the edge counted', counted(opening.refusals), 'none'],
  ['processors in use, on average', used(opening.processors), ''],
];

const afterwardsRows = (plan, { afterwards: { paced, most } }) => [
  ...postRows(paced, whole(plan.posts_per_s)),
  ['single POSTs/s on 64 connections, each as soon as the last is answered', whole(most.per_s), ''],
  ['the same: p50 / p99 / longest', ms(most.latency_ms), ''],
];

const badMomentRows = (plan, { badMoment: result }) => [
  ['kill to the new brain being ready', after(result.ready_s), ''],
  ['kill until as many sessions are known as stayed', after(result.steady_s), KNOWN_ASKED],
  [`kill until all ${whole(result.expected)} are known, with the herd`, after(result.all_s), ''],
  ['kill until the last of the herd is welcomed', after(result.herd_s), ''],
  ['kill to events flowing to all of the crowd', after(result.flowing_s), KNOWN_ASKED],
  ['connections dropped besides the herd', whole(result.steady.lost), '0'],
  ['of the herd: refused, told to come back later',
    `${whole(result.herd.failed)}, ${whole(result.herd.busy)}`, '0, 0'],
  ['refusals that the edge counted', counted(result.refusals), ''],
  ['single POSTs until the new brain was ready: taken, refused, unanswered',
    [result.away.accepted, result.away.refused, result.away.broken].map(whole).join(', '), ''],
  ['**From then on, while sessions and herd come back**', '', ''],
  ...postRows(result.posts, whole(plan.posts_per_s)),
  crowdRow(result),
  ['processors in use, on average', used(result.processors), ''],
];

const recoveredRows = (plan, { recovered }) => postRows(recovered, whole(plan.posts_per_s));

const ROWS = { opening: openingRows, afterwards: afterwardsRows, badMoment: badMomentRows,
  recovered: recoveredRows };

/** Rows of all phases that came to their end. */
export const badDayRows = (plan, found) => Object.entries(ROWS)
  .filter(([phase]) => found[phase] !== undefined)
  .flatMap(([phase, rows]) => [[HEAD[phase], '', ''], ...rows(plan, found)]);
