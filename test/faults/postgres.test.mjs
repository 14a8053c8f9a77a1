// A short run of the kills with a PostgreSQL and a fixed seed, and its verdict, fed with lies.

import assert from 'node:assert/strict';
import test from 'node:test';
import { runPostgres } from './lib/postgres_run.mjs';
import { verdict } from './lib/postgres_verdict.mjs';

const TRUTH = {
  written: ['a-1', 'b-1', 'a-2'], events: ['a-1', 'b-1', 'a-2'], seen: ['a-1', 'b-1', 'a-2'],
  kills: [], gaps: 0, table: ['1 2', '3 4'], graph: ['3 4', '1 2'],
  wanted: new Map([['1 2', true], ['1 5', false]]), rejected: [],
};

test('the verdict names what is broken', () => {
  assert.deepEqual(verdict(TRUTH), []);
  for (const [lie, ...said] of [
    [{ events: ['a-1', 'a-2'] }, 'committed, not in the history: b-1 (1)'],
    [{ events: ['a-1', 'b-1', 'a-2', 'c-1'] }, 'in the history, not committed: c-1 (1)'],
    [{ events: ['a-1', 'b-1', 'b-1', 'a-2'] }, 'in the history twice: b-1 (1)'],
    [{ events: ['a-2', 'b-1', 'a-1'] }, 'in the history out of order: a-1 (1)'],
    [{ seen: ['a-1', 'a-2'] }, 'committed, not with the client: b-1 (1)'],
    [{ seen: ['a-1', 'b-1', 'a-2', 'x-1'] }, 'with the client, not committed: x-1 (1)'],
    [{ seen: ['a-1', 'b-1', 'a-2', 'a-1'] }, 'with the client twice: a-1 (1)'],
    [{ gaps: 2 }, 'gaps with the client: 2 (1)'],
    [{ graph: ['1 2'] }, 'in the table, not followed: 3 4 (1)'],
    [{ graph: ['1 2', '3 4', '5 6'] }, 'followed, not in the table: 5 6 (1)'],
    [{ wanted: new Map([['7 8', true], ['1 2', false]]) },
      'acknowledged, and the table is otherwise: 7 8, 1 2 (2)'],
    [{ rejected: ['outbox 1'] }, 'rejected: outbox 1 (1)'],
    [{ seen: ['a-1', 'a-1', 'b-1', 'a-2'], kills: [4] }, 'with the client twice: a-1 (1)'],
    [{ seen: ['a-1', 'b-1', 'a-2', 'a-1'], kills: [2] }],
  ]) assert.deepEqual(verdict({ ...TRUTH, ...lie }), said);
});

test('kills and stalls beside a PostgreSQL: nothing is lost or doubled', async () => {
  const { ok, text, tally } = await runPostgres({ seed: 2008, kills: 1 });
  assert.ok(ok, text);
  assert.ok(tally.events > 100, 'it had transactions');
});
