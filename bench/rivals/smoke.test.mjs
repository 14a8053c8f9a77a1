// Each server that is installed is started, gets 48 connections and some events, delivers every one
// and is gone afterwards. Not in `make test`, whose packages don't include the rivals:
// `node --test bench/rivals/smoke.test.mjs` after `tools/install.sh rivals` and `make build`.

import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { test } from 'node:test';
import { FOLLOWERS } from '../lib/crowd.mjs';
import { isAlive } from '../../test/lib/halley.mjs';
import { RIVALS } from './all.mjs';
import { lacking } from './lib/needs.mjs';
import { family, Program, scratch } from './lib/program.mjs';
import { rows } from './lib/table.mjs';
import { isHeld, turn } from './lib/turn.mjs';

const PLAN = {
  connections: 50, seconds: 1, rate: 100, workers: 2, publishers: 4, bytes: 128, rounds: 1,
};
const TIMEOUT_MS = 60_000;

function reason(rival) {
  // What is built with Halley makes the load for all.
  const missing = lacking(RIVALS.halley) ?? lacking(rival);
  return missing === null ? false : `not installed: ${missing}`;
}

for (const [name, rival] of Object.entries(RIVALS)) {
  const options = { skip: reason(rival), timeout: TIMEOUT_MS };
  test(`${name} delivers all of it and goes`, options, async () => {
    const pids = new Set();
    const watched = {
      ...rival,
      async start(plan) {
        const server = await rival.start(plan);
        return {
          ...server,
          pids() {
            for (const pid of server.pids()) pids.add(pid);
            return server.pids();
          },
        };
      },
    };
    const result = await turn(name, watched, PLAN);
    assert.equal(result.connected.connected, PLAN.connections);
    for (const kind of ['rated', 'most']) {
      const { published, received, due } = result[kind];
      assert.equal(published.refused, 0, kind);
      assert.ok(published.accepted >= PLAN.rate * PLAN.seconds * 0.9, `${published.accepted}`);
      assert.equal(due, published.accepted * FOLLOWERS);
      assert.equal(received.events, due, `${kind}: what was accepted is delivered`);
    }
    assert.equal(result.rated.events_per_s, PLAN.rate);
    assert.ok(pids.size > 0);
    assert.deepEqual([...pids].filter(isAlive), [], 'no process is left');
  });
}

test('a server that ends by itself is told with what it said', async () => {
  const server = new Program(scratch(), 'sh', ['-c', 'echo no such thing >&2; exit 3']);
  await assert.rejects(server.ready(1), /it ended \(3\): no such thing/);
  assert.equal(existsSync(server.folder), false);
});

test('a server goes with its children, by force if it must', async () => {
  const server = new Program(scratch(), 'sh', ['-c', 'sleep 60 & sleep 60 & wait']);
  while (server.pids().length < 3) await new Promise(setImmediate);
  const pids = family(server.child.pid);
  await server.stop(200);
  assert.deepEqual(pids.filter(isAlive), []);
});

test('a rate is held if nearly all came through, nobody long after it was due', () => {
  const window = (events, p99) => ({ received: {
    events, first_event_ns: 0, last_event_ns: 2e9, latency_ms: { p99 },
  } });
  assert.equal(isHeld(window(3_200, 5), 100), true);
  assert.equal(isHeld(window(3_000, 5), 100), false, 'it ran behind');
  assert.equal(isHeld(window(3_200, 2_000), 100), false, 'it was late');
});

test('the table has a row for each server, measured or not, and for the floor', () => {
  const window = { cpu: 2, due: 200, events_per_s: 10, received: {
    events: 100, first_event_ns: 0, last_event_ns: 1e9, latency_ms: { p50: 1, p99: 2 },
  } };
  const turns = [{ round: 0, connected: { connected: 10 },
    before: { pss: 0, slab: 0, parts: { p: 0 } },
    idle: { pss: 5_000, slab: 80_000, parts: { p: 1_000 } }, rated: window, most: window }];
  const servers = { a: { title: 'A', version: '1', turns },
    b: { title: 'B', version: null, turns: [], problem: 'not installed: b' } };
  const floors = [{ most: { sends_per_s: 200, sender_cpu_s_per_million: 4 },
    rated: { sender_cpu_s_per_million: 5 } }];
  const [a, bare, b] = rows({ plan: PLAN, servers, floors });
  assert.deepEqual(a, ['A, 1', '500 (p 100)', '1.00 / 2.00', '100', '20000.0', '100', '0.50',
    '20000.0', '50 %']);
  assert.deepEqual(bare.slice(4), ['5.0', '200', '1.00', '4.0', '0']);
  assert.deepEqual(b.slice(0, 2), ['B', 'not installed: b']);
});
