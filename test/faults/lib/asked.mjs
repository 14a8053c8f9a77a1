// A request of a round, until there is an answer that counts.

import { http } from '../../lib/client.mjs';
import { sleep, within } from '../../lib/wait.mjs';

const RETRY_MS = [20, 200];

/**
 * The answer's JSON, asked for until there is one; undefined if the round ends before, or if the
 * server refuses for good, which is wrong. `mayPass` says of which status that isn't so; `begins`
 * is called before each try, `request` is what `http` takes.
 */
export async function asked(world, { method, url, request, msMax, mayPass, random,
  begins = () => {} }) {
  while (!world.isOver) {
    begins();
    const answer = await within(`${method} ${url}`, http(method, url, request), msMax)
      .catch(() => undefined);
    // What comes while the power is off was answered by a server that is no more.
    if (answer?.status === 200 && answer.json && !world.isDark) return answer.json;
    if (answer && answer.status !== 200 && !mayPass(answer.status)) {
      world.wrong(`${method} ${url} was refused: ${answer.status} ${answer.body.slice(0, 200)}`);
      return undefined;
    }
    await sleep(random.int(...RETRY_MS));
  }
  return undefined;
}
