// One process of the brain's dies while the others run (processes/halley_faults.erl), as by a bug.
// The brain is started with a module more, which listens on a socket.

import { execFileSync } from 'node:child_process';
import { mkdirSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { until } from '../../lib/wait.mjs';

const SOURCE = fileURLToPath(new URL('../processes/halley_faults.erl', import.meta.url));
const TOLD_MS_MAX = 5_000;

/** Compiles the module into a folder of its own in `folder`, whose name no application has; gives
 *  what a brain has to have in its environment. */
export function makeKiller(folder) {
  const beams = join(folder, 'faults');
  mkdirSync(beams);
  execFileSync('erlc', ['-Werror', '-o', beams, SOURCE]);
  const socket = join(beams, 'socket');
  return { socket, environment: {
    ERL_ZFLAGS: [process.env.ERL_ZFLAGS ?? '', '-pa', beams, '-s', 'halley_faults',
      '-halley_faults', socket].join(' ') } };
}

/** Kills a process, one of `application` if that is given; gives its name and its supervisor's. */
export async function killProcess({ socket }, application = 'all') {
  // A brain that serves already may have that module a moment later.
  const answer = await until('the brain is told', () =>
    ask(socket, `${application}\n`).catch(() => undefined), TOLD_MS_MAX);
  if (!/^\S+ \S+\n$/.test(answer)) throw new Error(`no process was killed: ${answer}`);
  return answer.trim();
}

/** What comes until the end. */
function ask(socket, line) {
  return new Promise((resolve, reject) => {
    let text = '';
    const connection = connect(socket, () => connection.write(line));
    connection.setEncoding('utf8');
    connection.on('data', (data) => { text += data; });
    connection.once('error', reject);
    connection.once('close', () => resolve(text));
  });
}
