// Halley's counters, by GET /metrics. The edge sends its numbers once a second.

import assert from 'node:assert/strict';
import { api } from './client.mjs';

/** The value of a metric by its whole name, all its labels together. */
export async function metric(halley, name) {
  const { body } = await api(halley, 'GET', '/metrics');
  const lines = body.split('\n').filter((line) => /^[^ {]*/.exec(line)[0] === name);
  assert.ok(lines.length > 0, `no metric ${name}`);
  return lines.reduce((sum, line) => sum + Number(line.split(' ').at(-1)), 0);
}
