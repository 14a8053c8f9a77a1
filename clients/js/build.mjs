// Builds the client into `dist/`: modules with their types by tsc, and each entry in one small file
// by esbuild. Prints the sizes, and fails beyond what they may be.

import { execFileSync } from 'node:child_process';
import { readFileSync, rmSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { buildSync } from 'esbuild';

const BYTES_MAX = { 'halley.min.js': 6_144, 'halley-sse.min.js': 3_072 };
const ENTRIES = { 'halley.min.js': 'index.js', 'halley-sse.min.js': 'sse.js' };

const folder = fileURLToPath(new URL('.', import.meta.url));
rmSync(`${folder}dist`, { recursive: true, force: true });
execFileSync(`${folder}node_modules/.bin/tsc`, ['-p', folder], { stdio: 'inherit' });
for (const [file, entry] of Object.entries(ENTRIES)) {
  buildSync({
    entryPoints: [`${folder}dist/${entry}`], outfile: `${folder}dist/${file}`,
    bundle: true, minify: true, format: 'esm', target: 'es2022', legalComments: 'none',
  });
  const bytes = gzipSync(readFileSync(`${folder}dist/${file}`), { level: 9 }).length;
  console.log(`${file}: ${bytes} bytes with gzip, ${BYTES_MAX[file]} at most`);
  if (bytes > BYTES_MAX[file]) process.exitCode = 1;
}
