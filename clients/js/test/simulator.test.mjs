// The client in the simulator: 20,000 stories, none of which may go wrong, and lies, each of which
// must be found. More by `make simulate-clients SEEDS=1000000`.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import test from 'node:test';
import { fileURLToPath } from 'node:url';
import { tellOf } from './simulator/tell.mjs';

const STORIES = 20_000;
/** Among so many stories each lie is found. */
const FOUND_WITHIN = 1_500;

/** What a client did wrong before, or might. */
const LIES = {
  'an answer that isn\'t whole is taken for one': {
    changes: [['more: more ?? !!events[0]', 'more: false']],
  },
  'a subject is there as soon as the leader is told': {
    changes: [['return asker.hello();', 'asker.hello(); return this.confirmed();']],
  },
  'a tab is open at the leader\'s first word': {
    changes: [['listener.hold();\n          if (message)',
      'listener.message({}); if (message)']],
  },
  'what isn\'t answered is never asked again': {
    changes: [['if (!isBegun || looks) hello()', 'if (!isBegun) hello()']],
  },
  'ids are forgotten': { changes: [[/<= 6e5 \/\* Double \*\//, '< 0']] },
  'an opening says nothing of what tabs want': {
    changes: [['this.allowed() : this.#all()', 'this.#wanted.get("") : this.#all()']],
  },
  'a request waits for ever': { changes: [[/ANSWER_MS = [\d_e]+/, 'ANSWER_MS = 1e9']] },
  'the server loses an event': { lies: { loses: 7 } },
  'the server confirms a subject and forgets it': { lies: { forgets: true } },
};

test(`${STORIES} stories: nothing is lost, nothing twice, no promise lies`, async () => {
  const run = spawn(process.execPath, [
    fileURLToPath(new URL('./simulator/run.mjs', import.meta.url)), '1', `${STORIES}`,
  ]);
  let text = '';
  run.stdout.on('data', (part) => { text += part; });
  const [code] = await once(run, 'exit');
  assert.equal(code, 0, text);
  assert.match(text, / 0 of them wrong/);
});

for (const [name, lie] of Object.entries(LIES)) {
  test(`a lie that is found: ${name}`, async () => {
    const tell = tellOf(lie);
    let [seed, faults] = [0, []];
    while (!faults.length && seed < FOUND_WITHIN) ({ faults } = await tell(seed += 1));
    assert.notDeepEqual(faults, [], `not within ${FOUND_WITHIN} stories`);
  });
}
