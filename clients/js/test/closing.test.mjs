// A client that is closed before it has begun, as a page that shares its connection.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { sleep, until } from '../../../test/lib/wait.mjs';

test('a client that is closed while its first token is asked for stays closed', async () => {
  globalThis.document = globalThis.window = new EventTarget();
  Object.defineProperty(globalThis, 'navigator', { value: { locks: {} }, configurable: true });
  const { connect } = await import('../dist/index.js');
  const [asked, states] = [[], []];
  const token = () => new Promise((resolve) => { asked.push(resolve); });
  const halley = connect('http://localhost:1', { token });
  halley.onState((state) => states.push(state));
  await until('it asks', () => asked.length === 1);
  halley.close();
  asked[0](null);
  await sleep(100);
  const { length } = asked;
  halley.core.close();
  assert.deepEqual([length, states], [1, ['connecting', 'closed']]);
});
