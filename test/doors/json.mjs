// JSONTestSuite against each place that takes JSON: an event's data over HTTP and over WebSocket,
// the payload of a token, a JWK Set. A text stands as the value of a member, in a body that is else
// good; what is refused must be refused as JSON (`bad_json` and its like), not for what it means.
//
// Of the suite `y_` must be taken, `n_` must be refused, `i_` is the reader's choice.

import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import WebSocket from '../node_modules/ws/wrapper.mjs';
import { http } from '../lib/client.mjs';
import { prepare, scratchFile, start } from '../lib/halley.mjs';
import { metric } from '../lib/metrics.mjs';
import { bearer, jwks, makeKey, mint, nowS } from '../lib/token.mjs';
import { until, within } from '../lib/wait.mjs';

/** Halleys that read JWK Sets at once: each looks at its file once a second. */
const KEY_READERS = 6;
const WANT = { y: 'taken', n: 'refused', i: undefined };

const around = (before, text, after) =>
  Buffer.concat([Buffer.from(before), text, Buffer.from(after)]);

/** `200`, `400 bad_json`: the status and, of an error, its code. */
const said = ({ status, json }) => [status, json?.error?.code].filter(Boolean).join(' ');

async function overHttp(halley, text) {
  const body = around('{"subject":"json","data":', text, '}');
  const headers = { 'content-type': 'application/json' };
  const answer = await http('POST', `${halley.apiUrl}/v1/events`, { body, headers });
  return answer.status === 200 ? 'taken' : `refused: ${said(answer)}`;
}

async function overWebSocket(halley, text) {
  const address = `${halley.publicUrl.replace('http', 'ws')}/v1/ws?user=json`;
  const socket = new WebSocket(address, { perMessageDeflate: false });
  const answer = new Promise((resolve, reject) => {
    socket.on('error', reject);
    socket.on('close', (code) => resolve(`refused: close ${code}`));
    socket.on('message', (data) => {
      const { ok, error } = JSON.parse(data);
      if (ok) resolve('taken');
      if (error) resolve(`refused: ${error.code}`);
    });
    socket.on('open', () => {
      const operation = around('{"op":"publish","subject":"json","data":', text, '}');
      socket.send(operation, { binary: false });
    });
  });
  try {
    return await within('the answer to a publish', answer);
  } finally {
    socket.terminate();
  }
}

/** A token whose payload has the text as a claim that nobody reads. */
function tokenWith(key, text) {
  const head = { alg: key.alg, typ: 'JWT', kid: key.kid };
  const claims = around(`{"sub":"json","exp":${nowS() + 3_600},"claim":`, text, '}');
  const signed = `${Buffer.from(JSON.stringify(head)).toString('base64url')}.`
    + claims.toString('base64url');
  return `${signed}.${key.sign(signed).toString('base64url')}`;
}

const pollWith = (halley, token) =>
  http('GET', `${halley.publicUrl}/v1/poll?timeout=0`, { headers: bearer(token) });

async function asClaim(halley, key, text) {
  const answer = await pollWith(halley, tokenWith(key, text));
  return answer.status === 200 ? 'taken' : `refused: ${said(answer)}`;
}

/** A JWK Set with a new key and the text: the key is in force, or the set counts as an error. */
async function asKeys(halley, text, name) {
  const key = makeKey('EdDSA', name);
  const before = await metric(halley, 'halley_token_keys_errors_total');
  const token = mint(key, { sub: 'json' });
  const open = `{"keys":[${JSON.stringify(key.jwk)}],"member":`;
  writeFileSync(halley.keysFile, around(open, text, '}'));
  return until(`what became of the JWK Set of ${name}`, async () => {
    if ((await pollWith(halley, token)).status === 200) return 'taken';
    const errors = await metric(halley, 'halley_token_keys_errors_total');
    return errors > before ? 'refused: the set' : null;
  });
}

async function startWithKeys(key) {
  const halley = await prepare();
  halley.keysFile = scratchFile(halley, 'jwks.json', jwks(key));
  Object.assign(halley.settings,
    { HALLEY_AUTH_MODE: 'jwt', HALLEY_AUTH_KEYS: halley.keysFile });
  return halley.start();
}

/** Takes `texts` in turn with as many readers as there are Halleys. */
async function shareOut(texts, halleys, ask) {
  const rest = [...texts];
  await Promise.all(halleys.map(async (halley) => {
    for (let text = rest.shift(); text; text = rest.shift()) await ask(halley, text);
  }));
}

/** Cases are named `<place>/<file>`; a case of the reader's choice has no `want`. */
export async function run({ json }) {
  const texts = readdirSync(json).filter((name) => /^[yni]_/.test(name)).sort()
    .map((name) => ({ name, text: readFileSync(join(json, name)) }));
  const open = await start();
  const key = makeKey('HS256', 'claims', 'a secret of thirty-two bytes, or more');
  const keyed = await Promise.all(Array.from({ length: KEY_READERS }, () => startWithKeys(key)));
  const places = { http: [], websocket: [], token: [], jwks: [] };
  const put = (place, { name }, got) =>
    places[place].push({ name: `${place}/${name}`, want: WANT[name[0]], got });
  try {
    for (const one of texts) {
      put('http', one, await overHttp(open, one.text));
      put('websocket', one, await overWebSocket(open, one.text));
      put('token', one, await asClaim(keyed[0], key, one.text));
    }
    await shareOut(texts, keyed, async (halley, one) => {
      put('jwks', one, await asKeys(halley, one.text, one.name));
    });
  } finally {
    await Promise.all([open, ...keyed].map((halley) => halley.stop()));
  }
  const notes = Object.entries(places).map(([place, cases]) => {
    const choices = cases.filter(({ want }) => want === undefined);
    const taken = choices.filter(({ got }) => got === 'taken').length;
    return `${place}: of ${choices.length} texts that are the reader's choice ${taken} are taken`;
  });
  return { cases: Object.values(places).flat(), notes };
}
