// With SERVER=mochiweb the system tests drive `apps/halley_mochiweb` in place of the edge: the same
// API, the same streams, in one Erlang node. test/system/mochiweb.json says which tests run so, and
// why the others don't.

import { readFileSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';

export const isMochiweb = process.env.SERVER === 'mochiweb';

const LIBRARIES = fileURLToPath(new URL(
  `../../${process.env.REBAR_BASE_DIR ?? '_build'}/default/lib`, import.meta.url));
const table = JSON.parse(
  readFileSync(new URL('../system/mochiweb.json', import.meta.url), 'utf8'));

/** Whether a file, by its path, has tests that run. A row without its test is a mistake. */
export function hasFile(path) {
  if (!isMochiweb) return true;
  const excluded = table.files[basename(path, '.test.mjs')];
  const text = excluded && readFileSync(path, 'utf8').replaceAll("\\'", "'");
  const stale = Object.keys(excluded ?? {}).find((name) => !text.includes(name));
  if (stale !== undefined) throw new Error(`mochiweb.json: no test of ${path} has "${stale}"`);
  return excluded !== undefined;
}

/** Whether a test of the file that runs now does. */
export function runs(name) {
  if (!isMochiweb) return true;
  const excluded = table.files[basename(process.argv[1], '.test.mjs')] ?? {};
  return !Object.keys(excluded).some((part) => name.includes(part));
}

const address = (port) => `{{127,0,0,1}, ${port}}`;
const milliseconds = { s: 1_000, ms: 1, m: 60_000, h: 3_600_000 };

/** HALLEY_HISTORY_RETENTION and the like, as the brain's settings have them. */
function setting([name, value]) {
  const key = name.slice('HALLEY_'.length).toLowerCase();
  const dotted = key.startsWith('limits_') ? `limits.${key.slice(7)}` : key.replace('_', '.');
  return `'${dotted}' => ${JSON.stringify(value)}`;
}

const isOfBrain = ([name]) => /^HALLEY_(DATA_DIR|HISTORY_|SESSIONS_|LIMITS_)/.test(name);

/** The command that starts it, as `[program, ...words]`. */
export function command({ folder, publicPort, apiPort, settings }) {
  const [, count, unit] = /^(\d+)(\D+)$/.exec(settings.HALLEY_STREAM_HEARTBEAT ?? '25s');
  const file = join(folder, 'sys.config');
  writeFileSync(file, `[{halley, [{settings, #{${
    Object.entries(settings).filter(isOfBrain).map(setting).join(', ')}}}]},
 {halley_mochiweb, [{public, ${address(publicPort)}}, {api, ${address(apiPort)}},
                    {handler, halley_api}, {heartbeat_ms, ${count * milliseconds[unit]}}]}].\n`);
  return ['erl', '-noinput', '+P', '1048576', '-config', file, '-eval',
    '{ok, _} = application:ensure_all_started(halley_mochiweb, permanent),'
      + ' {ok, _} = application:ensure_all_started(halley_api, permanent).'];
}

export const environment = { ERL_LIBS: LIBRARIES };
