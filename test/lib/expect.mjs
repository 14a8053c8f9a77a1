// The contract's rules for every answer, in one place.

import assert from 'node:assert/strict';

/** "Errors are JSON {"error":{"code":…,"message":…}} with the fitting status". */
export function assertError(answer, status) {
  assert.equal(answer.status, status, `status of ${JSON.stringify(answer.body)}`);
  assert.match(answer.headers['content-type'] ?? '', /^application\/json/);
  const error = answer.json?.error;
  assert.ok(error, `a JSON error, but got ${JSON.stringify(answer.body)}`);
  assert.match(error.code, /^[a-z][a-z0-9_]*$/);
  assert.ok(error.message.length >= 10, `a message that helps: ${error.message}`);
  return error;
}

/** An event as clients see it: `{"id":…,"subject":…,"at":…,"data":…}`. */
export function assertEvent(event, subject, data) {
  assert.equal(event.subject, subject);
  assert.deepEqual(event.data, data);
  assert.ok(event.id !== undefined && event.id !== '', 'an event has an id');
  assert.ok(event.at !== undefined, 'an event has a time');
}
