// The emulator's settings that are compared, in the order of the table. The first is what Halley's
// launcher chooses on two cores.

const QUIET = '+sbwt none +sbwtdcpu none +sbwtdio none';
/** OTP's own defaults, which vm.args turns off. */
const BUSY = '+sbwt medium +sbwtdcpu short +sbwtdio short';
/** What the article set by `thread_no_node_processor_spread`. */
const BOUND = '+sbt tnnps';

export const SETTINGS = [
  { name: '1 scheduler', flags: `+S 1:1 ${QUIET}` },
  { name: '1, bound', flags: `+S 1:1 ${QUIET} ${BOUND}` },
  { name: '1, busy wait', flags: `+S 1:1 ${BUSY}` },
  { name: '2 schedulers', flags: `+S 2:2 ${QUIET}` },
  { name: '2, bound', flags: `+S 2:2 ${QUIET} ${BOUND}` },
  { name: '2, busy wait', flags: `+S 2:2 ${BUSY}` },
];

/** Who goes first has another machine than who goes last: each round begins with another one. */
export function turns(round) {
  const first = (round - 1) % SETTINGS.length;
  return [...SETTINGS.slice(first), ...SETTINGS.slice(0, first)];
}
