// A long run: its phases one after the other under the recorder's eyes, and results whatever
// becomes of them.

import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { killLoad } from '../lib/load.mjs';
import { describeMachine } from '../lib/machine.mjs';
import { say } from '../lib/say.mjs';
import { Recorder, Stop } from './recorder.mjs';
import { about, freeName, keepFolder, makeFolder, writeResults } from './results.mjs';
import { stoppedRows } from './rows.mjs';
import { Stage } from './stage.mjs';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));

/**
 * Runs `phases` (name to `async (stage) => result`) with a Halley of its own. `title`, `command`
 * and `name` (of the results' directory, unless `out` gives one) are texts; `save` keeps the run in
 * bench/results/; `rows(found)` makes the table; `watch` are options of the recorder; `more` goes
 * into result.json as it is.
 */
export async function runLong(plan, phases, { title, command, name, out, save, rows, watch,
  more }) {
  const work = fileURLToPath(new URL('../work/', import.meta.url));
  mkdirSync(work, { recursive: true });
  const kept = freeName(name);
  const folder = makeFolder(out, kept);
  const machine = describeMachine();
  const started = new Date().toISOString();
  const stage = new Stage(plan, work);
  const recorder = new Recorder(join(folder, 'samples.jsonl'), () => stage.pids, watch);
  stage.recorder = recorder;
  for (const signal of ['SIGINT', 'SIGTERM']) {
    process.once(signal, () => recorder.stop(new Stop(`It was interrupted (${signal}).`)));
  }
  let stopped = null;
  try {
    recorder.begin('start');
    await recorder.unlessStopped(stage.startHalley());
    for (const [phase, run] of Object.entries(phases)) {
      recorder.begin(phase);
      stage.found[phase] = await recorder.unlessStopped(run(stage));
    }
  } catch (error) {
    stopped = { phase: recorder.phase, why: error.message.replaceAll(ROOT, '') };
    say(`stopped: ${error instanceof Stop ? error.message : error.stack}`);
    process.exitCode = 1;
  }
  killLoad();
  await recorder.end();
  await stage.close().catch((error) => say(`the end of Halley: ${error.message}`));

  const heading = `${title}, ${started.slice(0, 10)}`;
  const paragraphs = about({ machine, command, seconds: recorder.seconds });
  const table = writeResults(folder, { title: heading, about: paragraphs,
    rows: [...rows(stage.found), ...stopped ? stoppedRows(recorder.samples) : []], stopped,
    ...more, plan, machine, started, found: stage.found });
  say(`wrote ${folder}: report.html, table.md, result.json, samples.jsonl`);
  if (save) keepFolder(folder, kept);
  // A phase that was left in the middle may wait for something still.
  process.stdout.write(`\n${table}`, () => process.exit());
}
