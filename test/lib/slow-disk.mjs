// A disk of a Halley's own that is slow to sync (`slow-disk.c`). The machine's is left alone.

import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const SOURCE = fileURLToPath(new URL('slow-disk.c', import.meta.url));
/** One sync of so many takes so long, as on a disk that others share. */
const [LONG_ONE_IN, LONG_SYNC_MS] = [50, 1_500];

/** For a Halley that isn't started yet: each sync takes so many milliseconds, some take 1,500. */
export function slowDisk(halley, syncMs) {
  const library = join(halley.folder, 'slow-disk.so');
  // gcc is among the packages that `make build` installs.
  execFileSync('gcc', ['-shared', '-fPIC', '-O2', '-Wall', '-Werror', `-DSYNC_MS=${syncMs}`,
    `-DLONG_SYNC_MS=${LONG_SYNC_MS}`, `-DLONG_ONE_IN=${LONG_ONE_IN}`, '-o', library, SOURCE]);
  halley.settings.LD_PRELOAD = library;
}
