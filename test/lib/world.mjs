// The beginning and the end of most files of tests: a Halley of some kind, and everything ended.

import { after } from 'node:test';
import { openBrowser } from './browser.mjs';
import { prepare, scratchFile, start } from './halley.mjs';
import { closeStreams } from './streams.mjs';
import { jwks } from './token.mjs';

/** A Halley that asks users for tokens, signed with `key`. */
export async function startWithTokens(key, settings = {}) {
  const halley = await prepare({ settings: { HALLEY_AUTH_MODE: 'jwt', ...settings } });
  halley.settings.HALLEY_AUTH_KEYS = scratchFile(halley, 'jwks.json', jwks(key));
  return halley.start();
}

/** A Halley that pages of any port of this machine may ask, and a browser: `[halley, browser]`. */
export const startWithBrowser = (open = openBrowser) => Promise.all([
  start({ settings: { HALLEY_CORS_ORIGINS: 'localhost' } }), open(),
]);

/** At the end of the file: closes its streams, then what `all` gives and what there is of it. */
export function endAfter(all) {
  after(async () => {
    closeStreams();
    for (const one of all()) await (one?.stop ?? one?.close)?.call(one);
  });
}
