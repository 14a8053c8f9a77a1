// A Halley whose data directory is a small disk of its own, which a test can fill.

import { execFileSync } from 'node:child_process';
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { prepare } from './halley.mjs';
import { sleep } from './wait.mjs';

/**
 * Runs `body(halley, disk)` with a Halley that has not started yet, and takes both away afterwards.
 * `disk.fill(leave)` fills the disk but for so many bytes, `disk.free()` undoes it. Without root no
 * disk can be mounted, and the test is skipped.
 */
export async function onSmallDisk(context, body) {
  if (process.getuid() !== 0) return context.skip('mounting a tmpfs takes root');
  const halley = await prepare();
  const folder = halley.settings.HALLEY_DATA_DIR;
  const ballast = join(folder, 'ballast');
  mkdirSync(folder, { recursive: true });
  execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=16m', 'tmpfs', folder]);
  const disk = {
    fill(leave = 0) {
      const lines = execFileSync('df', ['--output=avail', '-B1', folder]).toString().split('\n');
      writeFileSync(ballast, Buffer.alloc(Math.max(0, Number(lines[1]) - leave), 1));
    },
    free: () => rmSync(ballast),
  };
  try {
    await body(halley, disk);
  } finally {
    halley.killProcesses();
    await sleep(100);
    execFileSync('umount', ['-l', folder]);
    halley.remove();
  }
  return undefined;
}
