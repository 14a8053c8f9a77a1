// One case: a data directory at rest, one file of it harmed, and what Halley makes of it.
//
//   equal     it starts, and everything is there
//   told      it starts, and clients that come back with a cursor, or read pages of the past, get a
//             gap around missing events, or around a deletion that no longer hides
//   refused   it starts and lets no client in, as the keys are gone, and reports it; or it doesn't
//             start: one line on stderr names the file and `./halley repair`, which ends with 0,
//             says what is lost, and leaves a directory that has nothing new in it; or says that
//             nothing is left, and how to begin without follows
//   WRONG     anything else

import { cpSync, existsSync, rmSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { api } from '../../lib/client.mjs';
import { sleep, until } from '../../lib/wait.mjs';
import { Graph } from './graph.mjs';
import { filesOf } from './damage.mjs';
import { folderHarmsOf, harm, harmsOf } from './harm.mjs';
import { judgePages, judgeReader } from './still_verdict.mjs';

const START_MS_MAX = 60_000;
const KILLED_MS_MAX = 5_000;
const STRANGERS = 150;
const KEYS = 'server-keys';
const NOTHING_LEFT = /can be read, and nothing was changed; put back a backup, or begin without/;

/** How long the log was before the last start. */
let logged = 0;

/** Whether what came to who went on from a cursor, and the past of those who were deleted, are as
 *  they were, or gaps say what isn't: `{found, told}`. Where follows are lost nobody knows what is
 *  owed to a reader. */
async function readEvents(still, history, mayLack) {
  const seen = [];
  const anew = [];
  for (const [user, { since }] of mayLack ? [] : still.readers) {
    const { came, gaps } = await still.resume(user);
    anew.push(...gaps.filter(({ reason }) => reason === 'other_store'));
    seen.push(judgeReader(history, user, { since, came, gaps }));
  }
  for (const subject of still.gone) {
    seen.push(judgePages(history, subject, { ...await still.past(subject), anew }));
  }
  return { found: seen.flatMap(({ found }) => found), told: seen.some(({ told }) => told) };
}

/**
 * Gives `{found, told}` of a Halley that runs. `mayLack`: a repair said that changes are lost, so
 * follows may be missing, and such as were taken back may stand again.
 */
async function look(still, mayLack) {
  const { world } = still;
  const base = world.history;
  const graph = new Graph(world, world.random, `s${world.random.int(0, 0xffffff)}`);
  const known = [world.graph.users, world.graph.subjects].map((all) => [...all, ...still.gone]);
  world.history = base.copy();
  world.wrongs = [];
  try {
    [graph.users, graph.subjects] = known;
    await graph.addStrangers(STRANGERS);
    await graph.compare();
    await world.keys.check();
    const lists = world.history.listed.violations
      .filter(({ kind, wasAsked }) => !(mayLack
        && (kind === 'follow lost' || (kind === 'follow invented' && wasAsked))));
    const found = [...lists.map(({ kind, user, subject, text }) =>
      `${kind}: ${user} ${subject}: ${text}`), ...world.wrongs];
    const events = await readEvents(still, base, mayLack);
    return { found: [...found, ...events.found], told: events.told };
  } finally {
    graph.close();
    world.history = base;
  }
}

/** Starts it; gives null when it serves, or how it ended. */
async function start(halley) {
  logged = halley.log.length;
  halley.spawn();
  await until('it serves or has ended', async () => halley.hasExited
    || (await api(halley, 'GET', '/readyz')).status === 200, START_MS_MAX);
  return halley.hasExited ? halley.exited() : null;
}

/** Repairs that are killed, most of them while they write. Gives whether any was. */
async function killedRepairs({ halley, dataDir }, random) {
  const isWriting = () => existsSync(join(dataDir, 'follows-repaired'));
  let isKilled = false;
  for (let left = random.int(0, 3); left > 0; left -= 1) {
    isKilled = await halley.commandKilled(async () => {
      const end = Date.now() + random.pick([100, KILLED_MS_MAX, KILLED_MS_MAX]);
      while (!isWriting() && Date.now() < end) await sleep(1);
      await sleep(random.pick([0, 5, 20, 50, 200]));
    }, 'repair') || isKilled;
  }
  return isKilled;
}

async function repair(still, { path, kind }, random) {
  const { server } = still;
  const lines = server.halley.stderr.trim().split('\n');
  // Keys are made anew: there is nothing to rebuild them from.
  const remedy = path === KEYS ? './halley key' : './halley repair';
  // What is not there any more is known by its folder at best.
  const names = kind === 'remove' ? [basename(path), basename(dirname(path))] : [basename(path)];
  const naming = lines.filter((line) => names.some((name) => line.includes(name))
    && line.includes(remedy));
  if (naming.length !== 1) {
    return [`it refused to start, and no line names ${path} and ${remedy}: `
      + lines.slice(-3).join(' | ').slice(0, 400)];
  }
  if (path === KEYS) return [];
  // One that was killed may have said what is lost, to nobody.
  const isKilled = await killedRepairs(server, random);
  const { code, stdout, stderr } = await server.halley.command('repair');
  if (code !== 0 && path === 'follows' && NOTHING_LEFT.test(stderr)) return beginAnew(still);
  if (code !== 0) return [`repair ended with ${code}: ${stderr.slice(0, 300)}`];
  const exit = await start(server.halley);
  if (exit) return [`it does not start after a repair: ${server.halley.logTail}`];
  const { found } = await look(still, isKilled || stdout.trim() !== '');
  return found;
}

/** There is nothing to repair, and the repair says how to begin without follows. */
async function beginAnew(still) {
  const { server } = still;
  for (const name of ['follows', 'follows.position']) {
    rmSync(join(server.dataDir, name), { recursive: true, force: true });
  }
  const exit = await start(server.halley);
  if (exit) return [`it does not start without follows: ${server.halley.logTail}`];
  const { found } = await look(still, true);
  return found;
}

/** The keys are gone, and so nobody gets in. */
async function isClosed({ server, world }) {
  const path = '/v1/users/u0/following';
  return (await api(server.halley, 'GET', path, undefined, world.headers)).status === 401;
}

function saysWhy(halley) {
  const says = halley.log.slice(logged).split('\n').some((line) => line.includes(KEYS));
  return says ? [] : [`no key opens anything, and no line of the log names ${KEYS}`];
}

/** Plays a case; gives `{kind, did, found}`. */
export async function playCase(still, { base, what }, random) {
  const { server } = still;
  rmSync(server.dataDir, { recursive: true, force: true });
  cpSync(base.folder, server.dataDir, { recursive: true });
  const did = harm(server.dataDir, what, random);
  still.world.random = random;
  let [kind, found] = ['refused', []];
  try {
    const exit = await start(server.halley);
    if (exit) {
      found = await repair(still, what, random);
    } else if (await isClosed(still)) {
      found = saysWhy(server.halley);
    } else {
      const seen = await look(still, false);
      found = seen.found;
      kind = seen.told ? 'told' : 'equal';
    }
  } catch (error) {
    found = [error.message];
  } finally {
    await server.killBoth();
  }
  return { kind: found.length > 0 ? 'WRONG' : kind, did, found };
}

/**
 * Every harm to every file and folder of every base, in an order that the seed decides. An older
 * copy of the keys is left out: it is a whole file of this Halley, and what keys there are is what
 * it says.
 */
export function casesOf(still, random) {
  const all = still.bases.flatMap((base) => [
    ...folderHarmsOf(base.folder, base.olders),
    ...filesOf(base.folder).flatMap((path) => harmsOf(base.folder, path, base.olders)),
  ].filter(({ path, kind }) => path !== KEYS || kind !== 'older')
    .map((what) => ({ base, what })));
  return random.sample(all, all.length);
}
