// Damage at rest to files of the hooks' queue, and the start after it: Halley serves; hooks for
// acknowledged events are sent, or a gap covers them; later hooks are sent.
//
//   HOOKS_DAMAGE_CASES=4   how many kinds of damage, by chance; there are ten
//   HOOKS_DAMAGE_SEED=1    the seed; without one, the time decides

import assert from 'node:assert/strict';
import { cpSync, existsSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { http } from '../lib/client.mjs';
import { Endpoint, SECRET } from '../lib/endpoint.mjs';
import { harm, harmsOf } from '../faults/lib/harm.mjs';
import { freePort, prepare, scratchFile, test } from '../lib/halley.mjs';
import { metric } from '../lib/metrics.mjs';
import { until } from '../lib/wait.mjs';
import { Random } from '../faults/lib/random.mjs';

const EVENTS = 40;
const TOLD_MS_MAX = 60_000;
const CASES = Number(process.env.HOOKS_DAMAGE_CASES ?? 4);
const SEED = Number(process.env.HOOKS_DAMAGE_SEED ?? Date.now() % 1_000_000);
const MARK = 'hooks.made';

async function publish(halley, user) {
  const from = Date.now();
  const { status, body } = await http('POST', `${halley.publicUrl}/v1/me/events?user=${user}`,
    { body: JSON.stringify({ to: ['nobody'], data: user }) });
  assert.equal(status, 200, body);
  return { id: JSON.parse(body).id, from, to: Date.now() };
}

/** What was published and is neither told nor within a gap. */
function missing(told, published) {
  const gaps = told.filter(({ type }) => type === 'gap');
  return published.filter(({ id, from, to }) => !['published', 'undelivered'].every((type) =>
    told.some((hook) => hook.type === type && hook.event.id === id)
    || gaps.some((gap) => gap.from <= to && gap.to >= from)));
}

test(`damage to the hooks' files is a gap at most (seed ${SEED})`, async () => {
  const random = new Random(SEED);
  const endpoint = await new Endpoint(await freePort()).start();
  const halley = await prepare({ settings: {
    HALLEY_HOOKS_URL: endpoint.url, HALLEY_HOOKS_EVENTS: 'published,undelivered',
    HALLEY_LIMITS_HOOKS_RETRY_MS_MAX: '500',
  } });
  halley.settings.HALLEY_HOOKS_SECRET_FILE = scratchFile(halley, 'hooks-secret', `${SECRET}\n`);
  const data = halley.settings.HALLEY_DATA_DIR;
  const rest = join(halley.folder, 'rest');

  await halley.start();
  await publish(halley, 'first');
  await until('acked is there', () => existsSync(join(data, 'hooks', 'acked')));
  endpoint.answer = () => 503;
  const published = [];
  for (let n = 0; n < EVENTS; n += 1) published.push(await publish(halley, `user${n % 5}`));
  await until('all wait', async () => await metric(halley, 'halley_hooks_waiting_bytes') > 0);
  halley.killProcesses();
  await halley.exited();
  rmSync(join(data, 'edge'), { recursive: true, force: true });
  cpSync(data, rest, { recursive: true });

  const files = [...readdirSync(join(rest, 'hooks')).map((name) => join('hooks', name)), MARK];
  const harms = [{ path: 'hooks', kind: 'remove' },
    ...files.flatMap((path) => harmsOf(rest, path, []))];
  while (harms.length > CASES) harms.splice(random.int(0, harms.length - 1), 1);
  const wrong = [];
  for (const what of harms) {
    rmSync(data, { recursive: true });
    cpSync(rest, data, { recursive: true });
    const did = harm(data, what, random);
    const told = [];
    endpoint.take = (hook) => told.push(hook);
    endpoint.answer = () => 204;
    await halley.start();
    const last = await publish(halley, 'last');
    try {
      await until('the last one is told', () => missing(told, [last]).length === 0, TOLD_MS_MAX);
      await until('all are told, or a gap', () => missing(told, published).length === 0,
        TOLD_MS_MAX);
    } catch (error) {
      wrong.push(`${what.path}, ${did}: ${error.message}; ${missing(told, published).length} are `
        + `missing\n${halley.logTail}`);
    }
    await halley.terminate();
  }
  await halley.stop();
  await endpoint.stop();
  assert.deepEqual(wrong, []);
});
