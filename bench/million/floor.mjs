// The floor: bare sends over as many sockets on as many threads, alone on the machine.

import { load } from '../lib/load.mjs';
import { whole } from '../lib/words.mjs';

const SECONDS = 8;
/** Bytes of an event where none was measured. */
const EVENT_BYTES = 200;

export async function floor(stage) {
  const { plan, recorder, found } = stage;
  await recorder.unlessStopped(stage.stopHalley());
  const received = found.rates?.most.received;
  const bytes = received?.events > 0 ? Math.round(received.bytes / received.events) : EVENT_BYTES;
  recorder.mark(`the floor: ${whole(plan.connections)} sockets, ${bytes} bytes a send`);
  const result = await recorder.unlessStopped(load('floor', '--connections', `${plan.connections}`,
    '--threads', `${plan.workers}`, '--bytes', `${bytes}`, '--seconds', `${SECONDS}`,
    '--sched-batch'));
  stage.say(`${whole(result.sends_per_s)} sends/s by ${whole(result.pairs)} senders`);
  return result;
}
