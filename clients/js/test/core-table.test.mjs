// The core against the table that all languages share: test/clients/core.json.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import test from 'node:test';
import { S, make } from './lib/core.mjs';

const cases = JSON.parse(readFileSync(
  new URL('../../../test/clients/core.json', import.meta.url), 'utf8'));
const TRANSPORTS = ['websocket', 'sse', 'ndjson', 'poll'];

/** A core of this case, and what its steps do to it. */
function begin({ transports = TRANSPORTS, tokens = 'none', token, cursor, silence_s: silence = 75,
  random = 0.5 }) {
  // By the names that the table has for them.
  const texts = new Map();
  const textOf = (name, life) => {
    if (name === null) return null;
    const claims = { name, ...(life && { exp: one.now / S + life }) };
    const text = `e30.${Buffer.from(JSON.stringify(claims)).toString('base64url')}.x`;
    texts.set(text, name);
    return text;
  };
  const rules = { ways: transports.length, asks: tokens === 'asked', token, cursor,
    silenceMs: silence * S };
  const one = make(rules, random, undefined, false);
  const acts = {
    start: () => one.core.start(),
    heard: () => one.core.heard(),
    message: ({ message }) => one.core.message(message),
    retry: ({ s }) => one.core.retry(s * S),
    lost: ({ loss: { retry_after_s: after, ...loss } }) =>
      one.core.lost({ ...loss, ...(after && { retryAfterMs: after * S }) }),
    token: ({ token: name, life_s: life }) => one.core.token(textOf(name, life)),
    token_failed: () => one.core.tokenFailed('it failed'),
    close: () => one.core.close(),
    pass: ({ s }) => {
      one.pass(s * S);
      assert.ok(one.timer > one.now, 'something was due');
    },
    wait: ({ s }) => assert.ok(Math.abs(one.wait() - s * S) < 1, `not ${s} s`),
  };
  let isThere = false;
  /** What is dropped without a connection does nothing; only this client asks a silent server. */
  const counts = ([what]) => {
    const was = isThere;
    isThere = what === 'open' || (was && what !== 'drop');
    return what !== 'probe' && (what !== 'drop' || was);
  };
  const named = ([what, ...all]) => (what === 'open'
    ? [what, transports[all[0]], texts.get(all[1]) ?? all[1] ?? null, all[2] ?? null]
    : [what, ...all.map((text) => texts.get(text) ?? text)]);
  return (step) => {
    acts[step.do](step);
    const states = one.states.splice(0).map((text) => {
      const [state, code = null] = text.split(' ');
      return [state, code];
    });
    const calls = one.take().filter(counts).map(named);
    return { calls, states, shown: one.shown.splice(0), cursor: one.core.cursor };
  };
}

for (const { name, given, steps } of cases) {
  test(name, () => {
    const act = begin(given);
    for (const [n, step] of steps.entries()) {
      const { calls = [], states = [], shown = [], cursor } = step;
      const is = act(step);
      assert.deepEqual(is, { calls, states, shown, cursor: cursor ?? is.cursor },
        `step ${n}: ${JSON.stringify(step)}`);
    }
  });
}
