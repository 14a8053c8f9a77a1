// The needs of random kills: the same chance for the same seed, events that are numbered, a check
// that a tab's events are whole, and a text of the observations.

import assert from 'node:assert/strict';
import { describeMachine } from '../../../../bench/lib/machine.mjs';
import { publish } from '../../../../test/lib/client.mjs';
import { sleep, until } from '../../../../test/lib/wait.mjs';

const EVERY_MS = 20;
/** How long before and behind the death of an owner an event may be late by it. */
const [BEFORE_MS, BEHIND_MS] = [1_000, 3_000];
export const PATIENCE_MS = 60_000;

/** The same numbers for the same seed (mulberry32). */
export function randomOf(seed) {
  let state = seed;
  return (below) => {
    state = (state + 0x6d2b79f5) | 0;
    let bits = Math.imul(state ^ (state >>> 15), 1 | state);
    bits = (bits + Math.imul(bits ^ (bits >>> 7), 61 | bits)) ^ bits;
    return ((bits ^ (bits >>> 14)) >>> 0) % below;
  };
}

/** Publishes 0, 1, 2 … until it is ended, each until it is accepted. */
export function publisher(halley, user) {
  let [n, isOver] = [0, false];
  const run = (async () => {
    for (; !isOver; n += 1) {
      await until('published', () => publish(halley, user, n, { id: `${user}-${n}` }),
        PATIENCE_MS);
      await sleep(EVERY_MS);
    }
  })();
  return async () => {
    isOver = true;
    await run;
    return n - 1;
  };
}

/**
 * A tab showed a piece of 0, 1, 2 …: in order, nothing twice, nothing left out. Where the leader
 * catches up, it may also show events from before it began, which it isn't owed, each of them once.
 * Gives how many.
 */
export function isWhole(shown) {
  const all = shown.map(({ what }) => what);
  const owed = all.filter((what) => what >= all[0]);
  assert.deepEqual(owed, owed.map((_, at) => all[0] + at));
  assert.equal(new Set(all).size, all.length);
  return all.length - owed.length;
}

/**
 * How late events were that came while server and network were there. Those from before a tab
 * began don't count: where the leader catches up, the tab shows them as they come.
 */
export const calmOf = (tabs, away) => tabs.flatMap((shown) =>
  shown.slice(1).filter(({ at, delay }) => at - delay >= shown[0].at
    && !away.some(([from, to]) => at >= from && at <= to)));

/** The longest that others waited at each death of an owner, in the order of length. */
export const gapsOf = (calm, deaths) => deaths.map((death) => calm
  .filter(({ at }) => at >= death - BEFORE_MS && at <= death + BEHIND_MS)
  .map(({ delay }) => delay))
  .filter((delays) => delays.length)
  .map((delays) => Math.max(...delays))
  .sort((a, b) => a - b);

/** For bench/results; `kind` is a part of the name. `rows`: `[what was seen, how much]`. */
export function reportOf(kind, command, rows) {
  const { cores, processor, memory_gb: memory, kernel, erlang, commit } = describeMachine();
  const day = new Date().toISOString().slice(0, 10);
  return [`${day}-tabs-${kind}`, `# Tabs, network, edge and brain killed at random, ${day}

${cores} cores (${processor}), ${memory} GB, Linux ${kernel}, ${erlang}, Node ${process.version},
commit ${commit}. Server, browser and test share the cores.

Made by \`${command}\`.

| | |
| --- | --- |
${rows.map((row) => `| ${row.join(' | ')} |\n`).join('')}`];
}
