// Builds the client into `dist/`: modules with their types by tsc, and each entry in one small file
// by esbuild, made smaller by terser. Prints the sizes, and fails beyond what they may be.
//
// A size is the larger of two: GNU gzip and zlib find different matches, and Node's zlib is a fork
// whose result is the smallest of all. A page's server may have any of them.

import { execFileSync, spawnSync } from 'node:child_process';
import { rmSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { buildSync } from 'esbuild';
import { minify } from 'terser';

const ENTRIES = {
  'halley.min.js': { entry: 'index.ts', bytesMax: 8_192 },
  'halley-sse.min.js': { entry: 'sse.ts', bytesMax: 3_584 },
};

/** As Node compresses, and as `gzip` does where there is one; `-n` leaves out name and time. */
const sizes = (code) => {
  const node = gzipSync(code, { level: 9 }).length;
  const gzip = spawnSync('gzip', ['-9nc'], { input: code }).stdout?.length;
  return { node, gzip };
};

/** Names that only the client's own parts use: none of the protocol, of a browser or of users. */
const OWN = `allowed arm ask askAbout asks atOnce base beside broken call choose clock confirmed
  connection core dial drop due fail getToken handOn hasWayBack heard heardAt hold isLeader leads
  leaveAll live liveAt lost newToken open opened opening operation pass patience phase place probe
  quiet refuse renew reopen report retry rules sharer shell show silent sleep spread start take
  tell tick timer tokenFailed until wake wall wants way ways`;

const folder = fileURLToPath(new URL('.', import.meta.url));
rmSync(`${folder}dist`, { recursive: true, force: true });
execFileSync(`${folder}node_modules/.bin/tsc`, ['-p', folder], { stdio: 'inherit' });
for (const [file, { entry, bytesMax }] of Object.entries(ENTRIES)) {
  const { outputFiles: [{ text }] } = buildSync({
    entryPoints: [`${folder}src/${entry}`], write: false,
    bundle: true, minify: true, format: 'esm', target: 'es2022', legalComments: 'none',
    mangleProps: new RegExp(`^(${OWN.split(/\s+/).join('|')})$`),
  });
  // "Unsafe" where somebody replaces built-ins, "pure" where no getter does anything.
  const compress = { passes: 3, hoist_funs: true, unsafe: true, pure_getters: true };
  const { code } = await minify(text, { ecma: 2020, module: true, compress });
  writeFileSync(`${folder}dist/${file}`, code);
  const { node, gzip } = sizes(code);
  console.log(`${file}: ${gzip ?? 'no'} bytes by gzip -9n, ${node} by Node's zlib,`,
    `${bytesMax} at most`);
  if (Math.max(node, gzip ?? 0) > bytesMax) process.exitCode = 1;
}
