// Shared by the cases: events, tokens, waits, and the assertions that have words of their own.

import assert from 'node:assert/strict';

export const STREAMS = ['websocket', 'sse', 'ndjson'];

/** The one event of that id; it is about `ann`. */
export const event = (id, data = { text: id }) =>
  ({ id, subject: 'ann', at: 1_800_000_000_000, data });

export const sleep = (ms) => new Promise((done) => { setTimeout(done, ms); });

const b64 = (value) => Buffer.from(JSON.stringify(value)).toString('base64url');

/** A token that is good for so many seconds, as far as a client can see. */
export function token(name, seconds = 3_600) {
  const now = Math.floor(Date.now() / 1_000);
  return `${b64({ alg: 'HS256' })}.${b64({ sub: 'bob', iat: now, exp: now + seconds, name })}.AAAA`;
}

/** Waits for these ids, and asserts that they are all, in this order. */
export async function shows(client, ids) {
  await client.until(`the events ${ids}, but got ${client.ids}`,
    () => client.ids.length >= ids.length);
  assert.deepEqual(client.ids, ids);
}

/** Milliseconds from `then` to the visit. */
export function between(then, visit, [least, most], what) {
  const ms = visit.at - then;
  assert.ok(ms >= least && ms <= most, `${what}: came after ${ms} ms, not ${least} to ${most}`);
}

export const isClosed = (client) => client.until('the state "closed"',
  () => client.told.find(({ state }) => state === 'closed'));
