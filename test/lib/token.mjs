// Tokens as an identity provider makes them, by node's own crypto.

import { createHmac, generateKeyPairSync, sign } from 'node:crypto';

const b64 = (data) => Buffer.from(data).toString('base64url');

const PAIRS = {
  RS256: () => generateKeyPairSync('rsa', { modulusLength: 2048 }),
  ES256: () => generateKeyPairSync('ec', { namedCurve: 'P-256' }),
  EdDSA: () => generateKeyPairSync('ed25519'),
};

/** A key: `{alg, kid, jwk, sign}`; `jwk` is what `auth.keys` has of it. */
export function makeKey(alg, kid, secret = undefined) {
  if (alg === 'HS256') {
    return { alg, kid, jwk: { kty: 'oct', alg, kid, k: b64(secret) },
      sign: (text) => createHmac('sha256', secret).update(text).digest() };
  }
  const { publicKey, privateKey } = PAIRS[alg]();
  const hash = alg === 'EdDSA' ? null : 'sha256';
  return { alg, kid, publicKey, jwk: { ...publicKey.export({ format: 'jwk' }), alg, kid },
    sign: (text) => sign(hash, Buffer.from(text), { key: privateKey, dsaEncoding: 'ieee-p1363' }) };
}

/** The text of `auth.keys`. */
export const jwks = (...keys) => JSON.stringify({ keys: keys.map((key) => key.jwk) });

export const nowS = () => Math.floor(Date.now() / 1_000);

/** A token with these claims; it is good for an hour unless they say otherwise. */
export function mint(key, claims, header = {}) {
  const head = { alg: key.alg, typ: 'JWT', ...(key.kid && { kid: key.kid }), ...header };
  const body = { exp: nowS() + 3_600, ...claims };
  const text = `${b64(JSON.stringify(head))}.${b64(JSON.stringify(body))}`;
  return `${text}.${b64(key.sign(text))}`;
}

export const bearer = (token) => ({ authorization: `Bearer ${token}` });
