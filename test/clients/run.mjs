// Runs the cases against a client and ends with `client tests: N passed, N failed`.
//
// `node run.mjs [--only part of a name] COMMAND [ARGUMENT...]`: the command starts the client's
// adapter, which README.md describes. Each case has a server and an adapter of its own, and several
// run side by side: they wait most of their time.

import { cases as operations } from './cases/operations.mjs';
import { cases as pacing } from './cases/pacing.mjs';
import { cases as presence } from './cases/presence.mjs';
import { cases as proxies } from './cases/proxies.mjs';
import { cases as resume } from './cases/resume.mjs';
import { cases as states } from './cases/states.mjs';
import { cases as subscriptions } from './cases/subscriptions.mjs';
import { cases as tokens } from './cases/tokens.mjs';
import { Client } from './lib/client.mjs';
import { Server } from './lib/server.mjs';

const SIDE_BY_SIDE = 10;
const CASE_MS_MAX = 120_000;
const TOLD_LINES = 12;

function options(given) {
  const [flag, part, ...rest] = given;
  return flag === '--only' ? { part, command: rest } : { part: '', command: given };
}

const { part, command } = options(process.argv.slice(2));
if (command.length === 0) {
  console.error('usage: node run.mjs [--only PART] COMMAND [ARGUMENT...]');
  process.exit(2);
}

/** What helps to see why: what the client told last, and what it wrote to stderr. */
function explain(error, clients) {
  const told = clients.flatMap((client) => client.told.slice(-TOLD_LINES));
  const lines = told.map((line) => JSON.stringify(line)).join('\n  ');
  const errors = clients.map((client) => client.errors).join('');
  return `${error.stack}\n  ${lines}\n${errors}`;
}

async function runCase({ name, run, clients: count = 1 }) {
  const server = await new Server().start();
  const clients = Array.from({ length: count }, () => new Client(command));
  const started = Date.now();
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`over ${CASE_MS_MAX} ms`)), CASE_MS_MAX);
  });
  let failure;
  try {
    await Promise.race([run({ server, client: clients[0], clients }), late]);
  } catch (error) {
    failure = explain(error, clients);
  }
  clearTimeout(timer);
  await Promise.all(clients.map((client) => client.stop()));
  server.stop();
  return { name, failure, ms: Date.now() - started };
}

const waiting = [...proxies, ...pacing, ...tokens, ...operations, ...subscriptions,
  ...presence, ...states, ...resume]
  .filter(({ name }) => name.includes(part));
const failures = [];
let passed = 0;

async function work() {
  for (let one = waiting.shift(); one; one = waiting.shift()) {
    const { name, failure, ms } = await runCase(one);
    console.log(`${failure ? 'FAIL' : 'ok  '} ${name} (${ms} ms)`);
    if (failure) failures.push(`--- failed: ${name}\n${failure}`);
    else passed += 1;
  }
}

await Promise.all(Array.from({ length: SIDE_BY_SIDE }, work));
for (const failure of failures) console.log(`\n${failure}`);
console.log(`\nclient tests: ${passed} passed, ${failures.length} failed`);
process.exit(failures.length > 0 || passed === 0 ? 1 : 0);
