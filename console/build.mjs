// Builds the console into `apps/halley_api/priv/console`, where the release takes it from, and
// notes there what it was built from: `check.mjs` says by that whether it is fresh.

import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { build } from 'vite';
import { BUILT, builtFrom } from './check.mjs';

const BYTES_MAX = 61_440;
const BUNDLED = ['preact', 'uplot'];

const folder = fileURLToPath(new URL('.', import.meta.url));
execFileSync(`${folder}node_modules/.bin/tsc`, ['-p', folder], { stdio: 'inherit' });
await build({ root: folder, configFile: `${folder}vite.config.mjs`, logLevel: 'warn' });

const script = `${BUILT}console.js`;
const said = '// Made from console/ by `make console`; the licences of its parts: licences.txt.';
writeFileSync(script, `${said}\n${readFileSync(script, 'utf8')}`);

// Browsers need no indentation.
const page = readFileSync(`${BUILT}index.html`, 'utf8');
writeFileSync(`${BUILT}index.html`, `${page.replace(/>\s+</g, '><').trim()}\n`);

// The licences of what is in the script, as they ask.
const licences = BUNDLED.map((name) =>
  `${name}\n\n${readFileSync(`${folder}node_modules/${name}/LICENSE`, 'utf8').trim()}\n`);
writeFileSync(`${BUILT}licences.txt`, licences.join(`\n${'-'.repeat(72)}\n\n`));
writeFileSync(`${BUILT}built-from.json`, `${JSON.stringify(builtFrom(), null, 2)}\n`);

const bytes = ['index.html', 'console.css', 'console.js']
  .map((name) => gzipSync(readFileSync(BUILT + name), { level: 9 }).length);
const sum = bytes.reduce((total, n) => total + n, 0);
console.log(`console: ${sum} bytes with gzip, ${BYTES_MAX} at most`);
if (sum > BYTES_MAX) process.exitCode = 1;
