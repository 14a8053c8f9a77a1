// Tells stories by their seeds: `node clients/js/test/simulator/run.mjs [FROM] [COUNT]`. A story
// that goes wrong is printed whole when it is the only one. `--old`: servers from before 11.5.

import { availableParallelism } from 'node:os';
import { fork } from 'node:child_process';
import { parseArgs } from 'node:util';
import { tellOf } from './tell.mjs';

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { old: { type: 'boolean' }, part: { type: 'boolean' }, jobs: { type: 'string' } },
});
const [from = 1, count = 1] = positionals.map(Number);
const tell = tellOf({ saysMore: !values.old });
const began = Date.now();
const TOLD_EVERY = 500;
// As `head` ends it.
process.stdout.on('error', () => process.exit());

if (count === 1) {
  const { faults, story } = await tell(from);
  console.log(JSON.stringify(story.setting));
  console.log(story.notes.join('\n'));
  for (const { tab: { name }, states, shown } of story.pages) {
    console.log(name, 'states:', states.join(', '));
    console.log(name, 'shown:', shown.map(({ id, subject, on }) =>
      `${id} (${subject}) at ${Math.round(on)}`).join(', '));
  }
  console.log(faults.length ? faults.join('\n') : 'nothing is wrong');
  process.exitCode = faults.length ? 1 : 0;
} else if (values.part) {
  for (let seed = from; seed < from + count; seed += 1) {
    const { faults } = await tell(seed);
    if (faults.length) process.send({ seed, faults });
    if ((seed - from + 1) % TOLD_EVERY === 0) process.send({ told: TOLD_EVERY });
  }
  process.disconnect();
} else {
  const jobs = Number(values.jobs ?? availableParallelism());
  const each = Math.ceil(count / jobs);
  const wrong = [];
  let told = 0;
  const progress = ({ told: more }) => {
    told += more;
    const perSecond = told / (Date.now() - began) * 1000;
    if (process.stderr.isTTY || told % 50_000 === 0) {
      process.stderr.write(`${told} of ${count} stories, ${wrong.length} of them wrong, ` +
        `${Math.round((count - told) / perSecond)} s to go`);
      process.stderr.write(process.stderr.isTTY ? '   \r' : '\n');
    }
  };
  const parts = Array.from({ length: jobs }, (_, n) => new Promise((done) => {
    const mine = Math.min(each, count - n * each);
    const part = fork(import.meta.filename, ['--part', ...(values.old ? ['--old'] : []),
      `${from + n * each}`, `${mine}`]);
    part.on('message', (one) => {
      if (one.told) {
        progress(one);
        return;
      }
      wrong.push(one);
      if (wrong.length <= 20) console.log(`seed ${one.seed}: ${one.faults.join('; ')}`);
    });
    part.on('exit', done);
  }));
  const codes = await Promise.all(parts);
  const s = Math.round((Date.now() - began) / 100) / 10;
  console.log(`${count} stories in ${s} s, ${wrong.length} of them wrong`);
  process.exitCode = wrong.length || codes.some(Boolean) ? 1 : 0;
}
