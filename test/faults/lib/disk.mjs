// Faults of a file system that has no room for more.

import {
  closeSync, fstatSync, ftruncateSync, openSync, rmSync, writeSync,
} from 'node:fs';
import { join } from 'node:path';
import { api } from '../../lib/client.mjs';
import { sleep, until } from '../../lib/wait.mjs';
import { filesOf } from './damage.mjs';

const BLOCK = Buffer.alloc(65_536, 1);
const SERVED_MS_MAX = 30_000;
const CHECKPOINT_MS_MAX = 30_000;

/** Writes until nothing fits any more, the last bytes one by one; then gives `left` bytes back. */
export function fill(file, left = 0) {
  const descriptor = openSync(file, 'w');
  for (let size = BLOCK.length; size >= 1; size = Math.floor(size / 16)) {
    try {
      for (;;) writeSync(descriptor, BLOCK, 0, size);
    } catch (error) {
      if (error.code !== 'ENOSPC') throw error;
    }
  }
  if (left > 0) ftruncateSync(descriptor, Math.max(0, fstatSync(descriptor).size - left));
  closeSync(descriptor);
}

/** Where ballast goes: beside data.dir, on the same disk. */
const ballastOf = ({ server }) => join(server.disk.mountPoint, 'ballast');

/** Calls `during` while the disk has room for `left` bytes and no more. */
export async function whileFull(world, left, during) {
  const ballast = ballastOf(world);
  fill(ballast, left);
  try {
    await during();
  } finally {
    rmSync(ballast);
  }
}

/** Waits until lists are served, by a brain that may refuse to write and isn't ready then. */
export async function isServing({ server, headers }) {
  await untilServed(server, 'follows are served', async () =>
    (await api(server.halley, 'GET', '/v1/users/nobody/following', undefined, headers))
      .status === 200);
}

/** Waits until follows and events are written again. */
export async function isWriting(world) {
  const { server, headers } = world;
  const publishes = async () => (await api(server.halley, 'POST', '/v1/events',
    { subject: 'nobody', data: 1 }, headers)).status === 200;
  const follows = () =>
    world.follows.change('follow', [['somebody', 'something']], { once: true });
  await untilServed(server, 'publishing goes on when there is room', publishes);
  await untilServed(server, 'follows are taken when there is room', follows);
}

/** The file system takes nothing any more: what was there is served, then it is mounted anew. */
export async function mountAnew(world) {
  const { server } = world;
  await isServing(world);
  await world.graph.compare();
  await server.killBoth();
  await server.disk.unmount();
  server.disk.mount();
  await server.startBrain();
}

/** Waits for an answer, unless nobody is left who could give it. */
async function untilServed({ halley }, what, probe) {
  await until(what, async () => halley.hasExited || await probe(), SERVED_MS_MAX);
  if (halley.hasExited) throw new Error('the brain has ended by itself');
}

/** Asks for changes at short intervals until `ms` are over, `most` at most, each once. */
export async function press(world, ms, random, most = Infinity) {
  const end = Date.now() + ms;
  for (let n = 0; n < most && Date.now() < end; n += 1) {
    if (random.chance(0.3)) {
      await world.graph.import(random.pick([1, 1_000, 20_000, 45_000]), { once: true });
    } else {
      await world.graph.stir({ once: true });
    }
    await sleep(random.int(10, 300));
  }
}

/** The brain dies or is told to stop, and is started again; or it goes on. */
export async function startAnew({ server }, random) {
  const how = random.pick(['killed', 'killed', 'stopped', 'went on']);
  if (how === 'killed') await server.killBrain();
  if (how === 'stopped') await server.halley.terminate('SIGTERM');
  if (how !== 'went on') await server.startBrain();
  return how;
}

/** The names of the files that the follows are in: a checkpoint begins with a new journal. */
export function storeFiles(world) {
  const paths = filesOf(world.server.dataDir).filter((path) => path.startsWith('follows/'));
  return paths.sort().join('\n');
}

/** Has the store begin an idle checkpoint, and returns when it is seen on the disk. `before` is
 *  `storeFiles` from before the follows that call for one: a slow machine may have written it
 *  by now. */
export async function awaitCheckpoint(world, before) {
  world.follows.beQuiet(CHECKPOINT_MS_MAX);
  await until('an idle checkpoint is written', () => storeFiles(world) !== before,
    CHECKPOINT_MS_MAX);
}

/** Returns while an idle checkpoint is written, or soon after. */
export async function idleCheckpoint(world, random) {
  const before = storeFiles(world);
  await world.graph.import(45_000);
  await awaitCheckpoint(world, before);
  await sleep(random.int(0, 300));
}
