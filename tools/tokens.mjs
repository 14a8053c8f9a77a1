#!/usr/bin/env node
// Writes protocol/tokens.json: keys, tokens and what becomes of each, signed by node's own crypto,
// so that `halley-token` is not judged by itself; and those of them that the fuzz target begins
// with. A run makes new keys, and the same cases.

import { createHmac, generateKeyPairSync, randomBytes, sign } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { examples } from './tokens-rfc.mjs';

const UNNAMED = { kid: undefined };
const NOW = 1_800_000_000;
const HOUR = 3600;
const EXP = `"exp":${NOW + HOUR}`;

const base64url = (data) => Buffer.from(data).toString('base64url');
/** A text stands for itself, so that what is no JSON can be signed too. */
const json = (value) => (typeof value === 'string' ? value : JSON.stringify(value));

// --- keys -------------------------------------------------------------------------------------

function pair(alg, kid, type, options) {
  const { privateKey, publicKey } = generateKeyPairSync(type, options);
  const jwk = { alg, kid, ...publicKey.export({ format: 'jwk' }) };
  const pem = publicKey.export({ type: 'spki', format: 'pem' });
  return { alg, kid, jwk, pem, secretOf: privateKey };
}

function secret(kid, bytes = 48) {
  const k = randomBytes(bytes);
  const alg = 'HS256';
  return { alg, kid, jwk: { alg, kid, kty: 'oct', k: base64url(k) }, secretOf: k };
}

const hs = secret('hs');
const rs = pair('RS256', 'rs', 'rsa', { modulusLength: 2048 });
const es = pair('ES256', 'es', 'ec', { namedCurve: 'P-256' });
const ed = pair('EdDSA', 'ed', 'ed25519', {});
const old = secret('hs-old');
const third = secret('hs-third');
const stranger = secret('stranger');
const large = pair('RS256', 'rs-4096', 'rsa', { modulusLength: 4096 });

const nameless = ({ jwk: { kid: _, ...jwk } }) => ({ keys: [jwk] });
const set = (...keys) => ({ keys: keys.map((key) => key.jwk) });
const SETS = {
  all: set(hs, rs, es, ed), hs: nameless(hs), rs: nameless(rs), es: nameless(es), ed: nameless(ed),
  named: set(hs), rotating: set(hs, old), three: set(hs, old, third), large: nameless(large),
  none: { keys: [] }, revoked: { ...set(hs), revoked: { ann: NOW - HOUR } },
};

// --- tokens -----------------------------------------------------------------------------------

function signature(alg, key, signed) {
  switch (alg) {
    case 'HS256': return createHmac('sha256', key).update(signed).digest();
    case 'HS512': return createHmac('sha512', key).update(signed).digest();
    case 'RS256': return sign('sha256', Buffer.from(signed), key);
    case 'ES256': return sign('sha256', Buffer.from(signed), { key, dsaEncoding: 'ieee-p1363' });
    case 'EdDSA': return sign(null, Buffer.from(signed), key);
    default: throw new Error(alg);
  }
}

const header = ({ alg, kid }, more = {}) => ({ alg, typ: 'JWT', kid, ...more });
const claims = (more = {}) => ({ sub: 'ann', exp: NOW + HOUR, ...more });

/** Signs two texts, whatever they are; `alg` is how, whatever the header says. */
function signed(key, head, body, alg = key.alg) {
  const text = `${base64url(json(head))}.${base64url(json(body))}`;
  return `${text}.${base64url(signature(alg, key.secretOf, text))}`;
}

const token = (key, more, head = {}) => signed(key, header(key, head), claims(more));
const without = (name, more = {}) => {
  const { [name]: _, ...rest } = claims(more);
  return rest;
};

// --- cases ------------------------------------------------------------------------------------

const cases = [];
const add = (name, keys, what, expect, more = {}) => {
  cases.push({ name, keys, token: what, ...more, expect });
};
const good = (name, keys, what, expect = {}, more = {}) =>
  add(name, keys, what, { user: 'ann', rights: '{}', expires_s: NOW + HOUR, ...expect }, more);
const refused = (name, keys, what, refusal, more = {}) => add(name, keys, what, { refusal }, more);

function goodOnes() {
  for (const key of [hs, rs, es, ed]) {
    good(`${key.alg} with its kid`, 'all', token(key));
    good(`${key.alg} without kid, one key of its kind`, 'all', token(key, {}, UNNAMED));
    good(`${key.alg}, a key without kid`, key.kid, token(key, {}, UNNAMED));
    good(`${key.alg}, a key without kid takes any`, key.kid, token(key, {}, { kid: 'whatever' }));
  }
  good('RSA of 4,096 bits', 'large', token(large));
  good('without kid, the first of two keys', 'rotating', token(hs, {}, UNNAMED));
  good('without kid, the second of two keys', 'rotating', token(old, {}, UNNAMED));
  good('no typ', 'all', token(hs, {}, { typ: undefined }));
  for (const typ of ['jwt', 'at+jwt', 'application/at+JWT']) {
    good(`typ ${typ}`, 'all', token(hs, {}, { typ }));
  }
  good('jku, x5u and jwk are not looked at', 'all', token(hs, {}, {
    jku: 'https://example.com/keys', x5u: 'https://example.com/x', jwk: stranger.jwk }));
  good('white space in header and claims', 'all',
    signed(hs, ` {"alg" : "HS256",\r\n "kid":"hs"}\n`, `\t${json(claims())} `));
  good('an escaped name is the name', 'all',
    signed(hs, '{"\\u0061lg":"HS256","kid":"h\\u0073"}',
      `{"s\\u0075b":"\\u0061nn",${EXP}}`));
  good('names that nobody asks for, whatever is in them', 'all',
    token(hs, { iat: 'yesterday', x: { a: [1, { b: null }] } }));
  good('another language', 'all', token(hs, { sub: 'Ænnchen 🐟' }), { user: 'Ænnchen 🐟' });
  good('255 bytes of sub', 'all', token(hs, { sub: 'x'.repeat(255) }), { user: 'x'.repeat(255) });
  good('exp with a fraction: the whole seconds', 'all', token(hs, { exp: NOW + 1.5 }),
    { expires_s: NOW + 1 });
  good('exp far away', 'all', signed(hs, header(hs), '{"sub":"ann","exp":1e12}'),
    { expires_s: 1e12 });
}

function rights() {
  const halley = { publish: ['room/7'], follow: ['room/*'] };
  good('rights', 'all', token(hs, { halley }),
    { rights: '{"follow":["room/*"],"publish":["room/7"]}' });
  good('rights in several lines become one', 'all',
    signed(hs, header(hs), `{"sub":"ann",${EXP},"halley":{\n "follow" : ["\\u0061"]\r\n}}`),
    { rights: '{"follow":["a"]}' });
  for (const none of ['admin', ['*'], null, true, 1]) {
    good(`halley ${json(none)} gives nothing`, 'all', token(hs, { halley: none }));
  }
  const list = (bytes) => ({ follow: ['x'.repeat(bytes - '{"follow":[""]}'.length)] });
  good('rights of 4,096 bytes', 'all', token(hs, { halley: list(4096) }),
    { rights: json(list(4096)) });
  refused('rights of 4,097 bytes', 'all', token(hs, { halley: list(4097) }), 'token_rights');
  refused('a right twice', 'all', signed(hs, header(hs),
    `{"sub":"ann",${EXP},"halley":{"follow":[],"f\\u006fllow":["*"]}}`), 'token_rights');
}

function shapes() {
  const whole = token(hs);
  const [head, body, sig] = whole.split('.');
  for (const [name, what] of [
    ['nothing', ''], ['one part', head], ['two parts', `${head}.${body}`], ['dots', '..'],
    ['four parts', `${whole}.${sig}`], ['six parts', `${whole}.a.b.c`],
    ['a space before', ` ${whole}`],
    ['a line end behind', `${whole}\n`], ['padding behind the signature', `${whole}=`],
    ['padding in the header', `${head}=.${body}.${sig}`],
    ['the alphabet of base64', `${head}.+/.${sig}`],
    ['bits behind the signature', `${head}.${body}.${after(sig)}`],
    ['JSON instead of base64url', `{"alg":"HS256"}.${body}.${sig}`],
    ['a header that is a list', signed(hs, [header(hs)], claims())],
    ['a header that is cut', signed(hs, '{"alg":"HS256"', claims())],
    ['alg twice', signed(hs, '{"alg":"HS256","alg":"HS256"}', claims())],
    ['alg twice, once escaped', signed(hs, '{"alg":"HS256","\\u0061lg":"none"}', claims())],
    ['no alg', token(hs, {}, { alg: undefined })],
    ['alg that is no text', token(hs, {}, { alg: 1 })],
    ['kid that is no text', token(hs, {}, { kid: 7 })],
    ['a header that is no UTF-8',
      `${base64url(Buffer.from('{"alg":"HS256","a":"\xff"}', 'latin1'))}.${body}.${sig}`],
  ]) {
    refused(name, 'all', what, 'token_malformed');
  }
  refused('JWE', 'all', `${head}.${body}.${sig}.${body}.${sig}`, 'token_encrypted');
  refused('a byte too long', 'all', whole, 'token_too_large',
    { token_bytes_max: whole.length - 1 });
  good('not a byte too long', 'all', whole, {}, { token_bytes_max: whole.length });
}

/** With the next letter at its end: other bits where they don't count. */
function after(text) {
  const letters = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_';
  return text.slice(0, -1) + letters[letters.indexOf(text.at(-1)) + 1];
}

function headers() {
  const members = (count) =>
    Object.fromEntries(Array.from({ length: count }, (_, n) => [`m${n}`, n]));
  good('16 members of the header', 'all', token(hs, {}, members(13)));
  refused('17 members of the header', 'all', token(hs, {}, members(14)), 'token_malformed');
  good('128 claims', 'all', token(hs, members(126)));
  refused('129 claims', 'all', token(hs, members(127)), 'token_claims');
  refused('crit', 'all', token(hs, {}, { crit: ['exp'] }), 'token_critical');
  refused('crit with b64', 'all', token(hs, {}, { crit: ['b64'], b64: false }), 'token_critical');
  refused('crit that is empty', 'all', token(hs, {}, { crit: [] }), 'token_critical');
  refused('typ of another kind', 'all', token(hs, {}, { typ: 'logout+jwt' }), 'token_type');
  refused('typ that is no text', 'all', token(hs, {}, { typ: ['JWT'] }), 'token_type');
  refused('an unknown kid', 'all', token(hs, {}, { kid: 'nobody' }), 'token_key_unknown');
  refused('an empty kid', 'all', token(hs, {}, { kid: '' }), 'token_key_unknown');
  refused('kid in another case', 'all', token(hs, {}, { kid: 'HS' }), 'token_key_unknown');
  refused('kid as a path', 'all', token(hs, {}, { kid: '../../dev/null' }), 'token_key_unknown');
  refused('one key with another kid', 'named', token(old), 'token_key_unknown');
  refused('without kid, three keys could be meant', 'three', token(hs, {}, UNNAMED),
    'token_key_unknown');
  refused('no key at all', 'none', token(hs), 'token_keys_missing');
}

function confusions() {
  const none = (alg) => `${base64url(json({ alg, kid: 'rs' }))}.${base64url(json(claims()))}.`;
  for (const alg of ['none', 'None', 'NONE', 'nOnE', '']) {
    refused(`alg "${alg}", no signature`, 'all', none(alg), 'token_algorithm');
  }
  for (const [name, bytes] of [['PEM', rs.pem], ['modulus', Buffer.from(rs.jwk.n, 'base64url')]]) {
    const forger = { alg: 'HS256', kid: 'rs', secretOf: bytes };
    const what = `HS256 with the RSA key's ${name} as the secret`;
    refused(what, 'all', token(forger), 'token_algorithm');
    refused(`${what}, where that is the only key`, 'rs', token(forger), 'token_algorithm');
  }
  const point = { alg: 'HS256', kid: 'es', secretOf: Buffer.from(es.jwk.x, 'base64url') };
  refused('HS256 with the EC key as the secret', 'all', token(point), 'token_algorithm');
  refused('HS512 by the right secret', 'all',
    signed(hs, header(hs, { alg: 'HS512' }), claims(), 'HS512'), 'token_algorithm');
  refused('alg in another case', 'all', token(hs, {}, { alg: 'hs256' }), 'token_algorithm');
  refused('alg of another key', 'all', token(es, {}, { alg: 'RS256' }), 'token_algorithm');
  refused('ES256 by name, HS256 by key', 'hs', token(es), 'token_algorithm');
  refused('the header brings its own key', 'all',
    token({ ...stranger, kid: 'hs' }, {}, { jwk: stranger.jwk }), 'token_signature');
}

function signatures() {
  for (const key of [hs, rs, es, ed]) {
    const [head, body, sig] = token(key).split('.');
    const other = Buffer.from(sig, 'base64url');
    other[5] ^= 1;
    const name = `${key.alg}, `;
    refused(`${name}no signature`, 'all', `${head}.${body}.`, 'token_signature');
    refused(`${name}a bit changed`, 'all', `${head}.${body}.${base64url(other)}`,
      'token_signature');
    refused(`${name}cut by a byte`, 'all', `${head}.${body}.${base64url(other.subarray(1))}`,
      'token_signature');
    refused(`${name}zeros`, 'all', `${head}.${body}.${base64url(Buffer.alloc(other.length))}`,
      'token_signature');
    refused(`${name}other claims`, 'all',
      `${head}.${base64url(json(claims({ sub: 'bob' })))}.${sig}`, 'token_signature');
  }
  const text = `${base64url(json(header(es)))}.${base64url(json(claims()))}`;
  const der = sign('sha256', Buffer.from(text), es.secretOf);
  refused('ES256 as DER', 'all', `${text}.${base64url(der)}`, 'token_signature');
  refused('HS256 by a strange secret', 'all', token({ ...stranger, kid: 'hs' }), 'token_signature');
  refused('HS256 by the other secret', 'rotating', token({ ...old, kid: 'hs' }), 'token_signature');
  refused('without kid, by neither of two keys', 'rotating', token(third, {}, UNNAMED),
    'token_signature');
}

function times() {
  const leeway = { leeway_s: 10 };
  refused('no exp', 'all', signed(hs, header(hs), without('exp')), 'token_expiry');
  for (const exp of [`"${NOW + HOUR}"`, 'null', 'true', '[]', '1e999', '{}']) {
    const body = `{"sub":"ann","exp":${exp}}`;
    refused(`exp ${exp}`, 'all', signed(hs, header(hs), body), 'token_expiry');
  }
  refused('exp is now', 'all', token(hs, { exp: NOW }), 'token_expired');
  good('exp is the next second', 'all', token(hs, { exp: NOW + 1 }), { expires_s: NOW + 1 });
  refused('exp before 1970', 'all', token(hs, { exp: -1 }), 'token_expired');
  good('exp within the leeway', 'all', token(hs, { exp: NOW - 9 }), { expires_s: NOW - 9 }, leeway);
  refused('exp at the end of the leeway', 'all', token(hs, { exp: NOW - 10 }), 'token_expired',
    leeway);
  good('nbf is now', 'all', token(hs, { nbf: NOW }));
  refused('nbf is the next second', 'all', token(hs, { nbf: NOW + 1 }), 'token_not_yet');
  refused('nbf within the next second', 'all', token(hs, { nbf: NOW + 0.5 }), 'token_not_yet');
  good('nbf within the leeway', 'all', token(hs, { nbf: NOW + 10 }), {}, leeway);
  refused('nbf beyond the leeway', 'all', token(hs, { nbf: NOW + 11 }), 'token_not_yet', leeway);
  refused('nbf that is no number', 'all', token(hs, { nbf: 'now' }), 'token_claims');
}

function revoked() {
  good('issued as the user\'s tokens begin to count', 'revoked', token(hs, { iat: NOW - HOUR }));
  good('issued within a second from then', 'revoked', token(hs, { iat: NOW - HOUR + 0.5 }));
  good('another user\'s, issued before', 'revoked', token(hs, { sub: 'bob', iat: 1 }),
    { user: 'bob' });
  for (const iat of [NOW - HOUR - 1, NOW - HOUR - 0.5, 0, -1, undefined, null, `${NOW}`, [NOW]]) {
    refused(`iat ${json(iat) ?? 'missing'} of a user whose tokens are revoked`, 'revoked',
      token(hs, { iat }), 'token_revoked');
  }
}

function others() {
  const issuer = { issuer: 'https://id.example' };
  const audience = { audience: 'halley' };
  good('the issuer', 'all', token(hs, { iss: 'https://id.example' }), {}, issuer);
  for (const iss of ['https://id.example/', '', undefined, ['https://id.example'], 1]) {
    refused(`iss ${json(iss) ?? 'missing'}`, 'all', token(hs, { iss }), 'token_issuer', issuer);
  }
  good('the audience', 'all', token(hs, { aud: 'halley' }), {}, audience);
  good('the audience among others', 'all', token(hs, { aud: ['web', 'halley'] }), {}, audience);
  for (const aud of ['halley2', 'Halley', undefined, [], ['web'], ['halley', 1], { halley: 1 }]) {
    refused(`aud ${json(aud) ?? 'missing'}`, 'all', token(hs, { aud }), 'token_audience', audience);
  }
  refused('no sub', 'all', signed(hs, header(hs), without('sub')), 'token_subject');
  const visitors = { nobody_allowed: true };
  good('no sub, of a visitor', 'all', signed(hs, header(hs), without('sub')), { user: '' },
    visitors);
  refused('sub: empty, of a visitor', 'all', token(hs, { sub: '' }), 'token_subject', visitors);
  for (const [name, sub] of [['empty', ''], ['256 bytes', 'x'.repeat(256)], ['a number', 7],
    ['a line end', 'ann\n'], ['NUL', 'a\0b'], ['DEL', 'a\x7f'],
    ['128 letters of 256 bytes', 'é'.repeat(128)]]) {
    refused(`sub: ${name}`, 'all', token(hs, { sub }), 'token_subject');
  }
  const body = json(claims());
  for (const [name, what] of [['a list', `[${body}]`], ['text', '"ann"'], ['nothing', ''],
    ['cut', body.slice(0, -1)], ['two objects', body + body],
    ['a lone surrogate in a name', `{"\\ud800":1,"sub":"ann",${EXP}}`],
    ['sub twice', `{"sub":"ann","sub":"bob",${EXP}}`],
    ['sub twice, once escaped', `{"sub":"ann","\\u0073ub":"bob",${EXP}}`],
    ['a name twice that nobody asks for', `{"x":1,"x":2,"sub":"ann",${EXP}}`]]) {
    refused(`claims: ${name}`, 'all', signed(hs, header(hs), what), 'token_claims');
  }
}

const groups = [goodOnes, rights, shapes, headers, confusions, signatures, times, revoked, others];
for (const group of groups) group();
for (const { set: keys, ...example } of examples) {
  SETS[example.keys] = keys;
  cases.push(example);
}

const about = 'Tokens and what becomes of each (halley-token), written by tools/tokens.mjs. '
  + 'Where a case says nothing else: now, no leeway, no issuer, no audience, 65,536 bytes at most.';
const lines = (list) => list.map((item) => `    ${item}`).join(',\n');
const place = (path) => fileURLToPath(new URL(`../${path}`, import.meta.url));
writeFileSync(place('protocol/tokens.json'), `{
  "about": ${JSON.stringify(about)},
  "now": ${NOW},
  "sets": {
${lines(Object.entries(SETS).map(([name, keys]) => `"${name}": ${JSON.stringify(keys)}`))}
  },
  "cases": [
${lines(cases.map((item) => JSON.stringify(item)))}
  ]
}
`);

// The first byte says what the rest is (edge/fuzz/fuzz_targets/token.rs).
const seed = (name, mode, text) =>
  writeFileSync(place(`edge/fuzz/corpus/token/seed-${name}`), Buffer.concat([
    Buffer.from([mode]), Buffer.from(text)]));
for (const { alg } of [hs, rs, es, ed]) {
  const { token: known } = cases.find(({ name }) => name === `${alg} with its kid`);
  seed(`token-${alg.toLowerCase()}`, 0, known);
}
seed('set', 3, json(SETS.all));
