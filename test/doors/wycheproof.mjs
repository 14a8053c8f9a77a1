// Project Wycheproof's JSON Web Signatures against the token check of a live Halley.
//
// Each group has a key, which becomes the JWK Set; what its cases sign is no JWT. So a refusal
// shows that a signature holds: claims are read only when it does, and `token_claims` says that
// they can't be. Every other refusal is one of the signature, the key or the shape.

import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { http } from '../lib/client.mjs';
import { prepare, scratchFile } from '../lib/halley.mjs';
import { bearer, makeKey, mint } from '../lib/token.mjs';
import { until } from '../lib/wait.mjs';

const FILES = ['json_web_signature_test.json', 'json_web_key_test.json'];

const poll = (halley, token) =>
  http('GET', `${halley.publicUrl}/v1/poll?timeout=0`, { headers: bearer(token) });

/** The keys of a group that check: public ones, or the secret that both sides have. */
function keysOf(group) {
  const { keys = undefined, ...key } = group.public ?? group.private;
  return keys ?? [key];
}

/**
 * Puts the keys in force. One of ours stands beside them and tells when they are: by nothing else
 * could one know, where none of them can be used.
 */
async function enforce(halley, keys, name) {
  const witness = makeKey('EdDSA', `witness ${name}`);
  writeFileSync(halley.keysFile, JSON.stringify({ keys: [...keys, witness.jwk] }));
  const token = mint(witness, { sub: 'wycheproof' });
  await until(`the keys of ${name} are in force`,
    async () => (await poll(halley, token)).status === 200);
}

/** A JWS as it can be shown: the JSON form has line ends, which no header may have. */
const shown = (jws) =>
  (typeof jws === 'string' ? jws : JSON.stringify(jws)).replace(/[\r\n]+/g, ' ');

async function judge(halley, jws) {
  const answer = await poll(halley, shown(jws));
  const code = answer.json?.error?.code;
  return code === 'token_claims' ? 'valid' : `invalid: ${answer.status} ${code}`;
}

/** Cases are named `<file without _test.json>/<tcId>`. */
export async function run({ wycheproof }) {
  const halley = await prepare();
  halley.keysFile = scratchFile(halley, 'jwks.json', JSON.stringify({ keys: [] }));
  Object.assign(halley.settings,
    { HALLEY_AUTH_MODE: 'jwt', HALLEY_AUTH_KEYS: halley.keysFile });
  await halley.start();
  const cases = [];
  try {
    for (const file of FILES) {
      const { testGroups } = JSON.parse(readFileSync(join(wycheproof, file), 'utf8'));
      for (const [n, group] of testGroups.entries()) {
        await enforce(halley, keysOf(group), `${file} ${n}`);
        for (const { tcId, comment, jws, result } of group.tests) {
          const name = `${file.replace('_test.json', '')}/${tcId}`;
          cases.push({ name, want: result, got: await judge(halley, jws),
            about: `${group.comment}: ${comment}` });
        }
      }
    }
  } finally {
    await halley.stop();
  }
  return { cases, notes: [] };
}
