// Tabs whose locks come late, and a leader whose answers never come. In the simulator.

import assert from 'node:assert/strict';
import test from 'node:test';
import { inWorld } from './simulator/world.mjs';

test('a tab that waits for its own lock isn\'t taken for one that is gone', inWorld((world) => {
  world.open({ lockMs: 200 });
  world.pass(2_000);
  const other = world.open({ subjects: ['a'], lockMs: 500 });
  for (let n = 0; n < 10; n += 1) {
    world.pass(200);
    if (other.halley.state === 'open') world.server.publish('a');
  }
  world.pass(1_000);
  assert.deepEqual(other.shown, world.server.log.map(({ event: { data } }) => data));
  assert.ok(other.shown.length > 5);
  const [{ subjects }] = world.server.sessions;
  assert.deepEqual([...subjects], ['a']);
}));

for (const [subject, is] of [['a', 'done'], ['no', 'right_missing']]) {
  test(`an answer that never comes is asked for again: ${is}`, inWorld((world) => {
    const [, other] = [world.open(), world.open()];
    world.pass(2_000);
    world.browser.losesAnswers = 1;
    const end = world.ends(other, (halley) => halley.subscribe(subject));
    world.pass(1_000);
    assert.equal(end.is, undefined);
    world.browser.losesAnswers = 0;
    world.pass(2_000);
    assert.equal(end.is, is);
    assert.equal(other.halley.state, 'open');
  }));
}

test('what is asked twice is told once: presence', inWorld((world) => {
  const [, other] = [world.open(), world.open()];
  world.pass(2_000);
  world.browser.losesAnswers = 1;
  const end = world.ends(other, (halley) => halley.watch('a'));
  world.pass(5_000);
  world.browser.losesAnswers = 0;
  world.pass(2_000);
  assert.equal(end.is, 'done');
  const said = world.server.operations.filter(({ op }) => op === 'subscribe');
  assert.equal(said.length, 1);
}));
