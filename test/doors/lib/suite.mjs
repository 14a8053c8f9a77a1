// One suite in a process of its own: `node suite.mjs <suite's module> <file for its result>`, on
// stdin where the suites are. Of its own, as the release that Halley is started from is a matter of
// the process (`LAUNCHER` of test/system).

import { readFileSync, writeFileSync } from 'node:fs';

const [module, out] = process.argv.slice(2);
const { run } = await import(module);
writeFileSync(out, JSON.stringify(await run(JSON.parse(readFileSync(0, 'utf8')))));
// What a suite left open must not keep the run waiting.
process.exit(0);
