// Users who show tokens. Good ones: logins with HS256 against logins without tokens, in turns. And
// bad ones, as many as are refused: what does that cost the edge, and does the brain hear of it?

import { generateKeyPairSync, randomBytes } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { start } from '../../test/lib/halley.mjs';
import { sleep } from '../../test/lib/wait.mjs';
import { Clients, load } from './load.mjs';
import { cpuDuring } from './process.mjs';
import { say } from './say.mjs';
import { fixed, median, whole } from './words.mjs';

const SETTLE_MS = 1_000;
/** How often all log in within one round: one wave is over in less than a second. */
const WAVES = 4;
const ASKED_PER_S = 50_000;

/** What bad tokens are: what `halley-load auth-flood` is told. */
const KINDS = {
  signature: [],
  mixed: ['--kind', 'mixed'],
  RS256: ['--alg', 'RS256'],
  ES256: ['--alg', 'ES256'],
  EdDSA: ['--alg', 'EdDSA'],
};
/** Admission is not what is measured. */
const open = { HALLEY_ADMISSION_RATE: '1000000' };

/** The server's settings, with new keys in the folder: one of each algorithm. */
export function tokensSettings(folder) {
  const secret = randomBytes(48).toString('base64url');
  const mine = { mode: 0o600 };
  writeFileSync(secretFile(folder), `${secret}\n`, mine);
  const pair = (kid, ...how) =>
    ({ kid, ...generateKeyPairSync(...how).publicKey.export({ format: 'jwk' }) });
  const keys = [
    { kid: 'hs', kty: 'oct', k: Buffer.from(secret).toString('base64url') },
    pair('rs', 'rsa', { modulusLength: 2048 }),
    pair('es', 'ec', { namedCurve: 'P-256' }),
    pair('ed', 'ed25519'),
  ];
  const file = join(folder, 'token-keys.json');
  writeFileSync(file, JSON.stringify({ keys }), mine);
  return { ...open, HALLEY_AUTH_MODE: 'jwt', HALLEY_AUTH_KEYS: file };
}

const secretFile = (folder) => join(folder, 'token-secret');

export async function tokens(halley, plan, folder) {
  const result = { jwt: [], none: [] };
  // Logins come first: then either Halley has done as much as the other.
  const other = await start({ settings: { ...open, HALLEY_EDGE_WORKERS: `${plan.workers}`,
    HALLEY_LOG_LEVEL: 'warning' } });
  try {
    const sides = { jwt: [halley, '--token-secret-file', secretFile(folder)], none: [other] };
    for (let round = 1; round <= plan.rounds; round += 1) {
      // Whoever goes first has another machine than who goes second: they change places.
      for (const name of round % 2 ? ['jwt', 'none'] : ['none', 'jwt']) {
        say(`tokens: round ${round} of ${plan.rounds}: logins, ${name}`);
        result[name].push(await logins(plan, ...sides[name]));
      }
    }
  } finally {
    await other.stop();
  }
  return { ...result, bad: await badOnes(halley, plan, folder) };
}

async function badOnes(halley, plan, folder) {
  const bad = Object.fromEntries(Object.keys(KINDS).map((kind) => [kind, []]));
  const seconds = Math.max(1, Math.round(plan.seconds / plan.rounds / 2));
  for (let round = 1; round <= plan.rounds; round += 1) {
    for (const [kind, options] of Object.entries(KINDS)) {
      say(`tokens: round ${round} of ${plan.rounds}: bad ones, ${kind}`);
      await sleep(SETTLE_MS);
      const { result: refused, cpu } = await cpuDuring(halley, () => load('auth-flood',
        '--url', halley.publicUrl, '--token-secret-file', secretFile(folder),
        '--seconds', `${seconds}`, ...options));
      const others = Object.keys(refused.statuses).filter((status) => status !== '401');
      if (others.length > 0) throw new Error(`tokens: bad ones are answered with ${others}`);
      bad[kind].push({ refused, cpu });
    }
  }
  return bad;
}

/** All log in, and leave, several times. */
async function logins(plan, halley, ...options) {
  const waves = [];
  for (let wave = 0; wave < WAVES; wave += 1) {
    await sleep(SETTLE_MS);
    const { result, cpu } = await cpuDuring(halley, async () => {
      const clients = new Clients('--url', halley.publicUrl,
        '--connections', `${plan.connections}`, ...options);
      const ready = await clients.ask('ready');
      await clients.quit();
      return ready;
    });
    if (result.connected !== plan.connections) {
      throw new Error(`tokens: only ${result.connected} logged in: ${JSON.stringify(result)}`);
    }
    waves.push({ logins: result, cpu });
  }
  return waves;
}

export function tokensRows(plan, { bad, jwt, none }) {
  const { signature, mixed } = bad;
  const others = [bad.RS256, bad.ES256, bad.EdDSA];
  const perS = (windows) => median(windows.map(({ refused }) => refused.answers_per_s));
  const share = (windows, side) => `${fixed(100 * median(windows.map(({ refused, cpu }) =>
    cpu[side] / refused.seconds)), 1)} %`;
  const cost = (windows) => fixed(median(windows.map(({ refused, cpu }) =>
    (cpu.edge / refused.answers) * 1e6)));
  const codes = Object.keys(mixed[0].refused.codes).length;
  const rate = (waves) => median(waves.map(({ logins: { connects_per_s: rate } }) => rate));
  const ratio = median(jwt.map((waves, round) => rate(waves) / rate(none[round])));
  const us = (rounds, side) => fixed(median(rounds.flat().map(({ logins: { connected }, cpu }) =>
    (cpu[side] / connected) * 1e6)), 1);
  const both = (rounds) => `${us(rounds, 'edge')} + ${us(rounds, 'brain')} µs`;
  return [
    ['**Bad tokens**', '64 keep-alive connections', ''],
    ['refused, HS256 with a wrong signature each', `${whole(perS(signature))}/s`,
      `≥ ${whole(ASKED_PER_S)}/s`],
    [`refused, half of them junk (${codes} codes)`, `${whole(perS(mixed))}/s`, ''],
    ['processor time of the brain meanwhile, of a core',
      `${share(signature, 'brain')}, ${share(mixed, 'brain')}`, '≤ 2 %'],
    ['the same of the edge', `${share(signature, 'edge')}, ${share(mixed, 'edge')}`, ''],
    ['processor time of the edge for a refusal', `${cost(signature)}, ${cost(mixed)} µs`, ''],
    ['refused, RS256, ES256, EdDSA with a wrong signature each',
      `${others.map((windows) => whole(perS(windows))).join(', ')}/s`, ''],
    ['processor time of the edge for each of these', `${others.map(cost).join(', ')} µs`, ''],
    ['the brain meanwhile', others.map((windows) => share(windows, 'brain')).join(', '), '≤ 2 %'],
    ['**Logins**', `${whole(plan.connections)} SSE, ${WAVES} times in each round`, ''],
    ['with HS256 tokens', `${whole(rate(jwt.flat()))}/s`, ''],
    ['with auth.mode = none, in turns', `${whole(rate(none.flat()))}/s`, ''],
    ['**with to without**', fixed(ratio), '≥ 0.85'],
    ['processor time of edge + brain for a session and its end, with', both(jwt), ''],
    ['the same, without', both(none), ''],
  ];
}
