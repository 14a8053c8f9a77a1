// A core with a clock that stands still and given chance, and its actions.

import assert from 'node:assert/strict';
import { WayCore } from '../../dist/ways.js';

export const S = 1_000;

/** A core and what it wanted: `calls`, and the time of its timer. */
export function make(rules = {}, random = 0.5, Made = WayCore, starts = true) {
  const world = {
    now: 1_000_000, calls: [], shown: [], states: [], timer: Infinity, canProbe: false,
  };
  const shell = {
    dial: (token, cursor) => world.calls.push(['open', core.transport, token, cursor]),
    drop: () => world.calls.push(['drop']),
    ask: () => world.calls.push(['ask']),
    renew: (token) => world.calls.push(['renew', token]),
    probe: () => {
      world.calls.push(['probe']);
      return world.canProbe;
    },
    show: (item) => world.shown.push(item.gap ? `gap ${item.gap.reason}` : item.id),
    report: (state, why) => world.states.push(why ? `${state} ${why.code}` : state),
    timer: (at) => { world.timer = at; },
  };
  const clock = {
    now: () => world.now,
    wall: () => world.now,
    random: () => (typeof random === 'function' ? random() : random),
  };
  const defaults = { ways: 4, asks: false, silenceMs: 75 * S };
  const core = new Made({ ...defaults, ...rules }, clock, shell);
  if (starts) core.start();
  return Object.assign(world, {
    core,
    /** What was wanted since the last time. */
    take: () => world.calls.splice(0),
    /** Goes to the timer's time; gives how long that took. */
    wait: () => {
      const ms = world.timer - world.now;
      assert.ok(Number.isFinite(ms), 'nothing is waited for');
      world.now = world.timer;
      core.tick();
      return ms;
    },
    pass: (ms) => { world.now += ms; },
    event: (id, cursor) => core.message({ id, subject: 's', at: 0, data: 1, cursor }),
    live: () => core.heard(),
  });
}
