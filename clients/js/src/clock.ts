// Time that only goes on, however the clock is set: waits are measured in it. A machine that sleeps
// stops some browsers' `performance`; the clock shows how long that was.

/** So much more, by the clock, is no inaccuracy. */
const SLEEP_MS = 1_000;

let asleep = 0;
let ahead = Date.now() - performance.now();

export function now(): number {
  const passed = performance.now();
  const more = Date.now() - passed - ahead;
  if (Math.abs(more) > SLEEP_MS) {
    ahead += more;
    asleep += Math.max(more, 0);
  }
  return passed + asleep;
}
