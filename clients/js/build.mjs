// Builds the client into `dist/`: modules with their types by tsc, and each entry in one small file
// by esbuild. Prints the sizes, and fails beyond what they may be.

import { execFileSync } from 'node:child_process';
import { readFileSync, rmSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { buildSync } from 'esbuild';

const ENTRIES = {
  'halley.min.js': { entry: 'index.js', bytesMax: 6_144 },
  'halley-sse.min.js': { entry: 'sse.js', bytesMax: 3_840 },
};

/** Names that only the client's own parts use: none of the protocol, of a browser or of users. */
const OWN = `answer ask atOnce base broken call change clock current drop flush heard isThere kind
  lost operation option owner place probe renew retry rules run session shell show silent sleep
  start tick timer tokenFailed tokens until wake way wrap`;

const folder = fileURLToPath(new URL('.', import.meta.url));
rmSync(`${folder}dist`, { recursive: true, force: true });
execFileSync(`${folder}node_modules/.bin/tsc`, ['-p', folder], { stdio: 'inherit' });
for (const [file, { entry, bytesMax }] of Object.entries(ENTRIES)) {
  buildSync({
    entryPoints: [`${folder}dist/${entry}`], outfile: `${folder}dist/${file}`,
    bundle: true, minify: true, format: 'esm', target: 'es2022', legalComments: 'none',
    mangleProps: new RegExp(`^(${OWN.split(/\s+/).join('|')})$`),
  });
  const bytes = gzipSync(readFileSync(`${folder}dist/${file}`), { level: 9 }).length;
  console.log(`${file}: ${bytes} bytes with gzip, ${bytesMax} at most`);
  if (bytes > bytesMax) process.exitCode = 1;
}
