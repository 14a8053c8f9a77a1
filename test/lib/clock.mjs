// A clock of a Halley's own, which a test sets while it runs (`clock.c`). The machine's is left
// alone.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const SOURCE = fileURLToPath(new URL('clock.c', import.meta.url));
const NS_OF_MS = 1_000_000n;

export class Clock {
  #file;
  #wallMs = 0;
  #sleptMs = 0;

  /** For a Halley that isn't started yet. */
  constructor(halley) {
    this.#file = join(halley.folder, 'clock');
    const library = join(halley.folder, 'clock.so');
    this.#write();
    // gcc is among the packages that `make build` installs.
    execFileSync('gcc', ['-shared', '-fPIC', '-O2', '-Wall', '-Werror',
      `-DCLOCK_FILE="${this.#file}"`, '-o', library, SOURCE]);
    halley.settings.LD_PRELOAD = library;
  }

  /** What it says. */
  get nowMs() { return Date.now() + this.#wallMs; }

  get nowS() { return Math.floor(this.nowMs / 1_000); }

  /** Sets it forwards or backwards. */
  step(seconds) {
    this.#wallMs += seconds * 1_000;
    this.#write();
  }

  /** The machine slept for so long: timers stood still. */
  sleep(seconds) {
    this.#sleptMs += seconds * 1_000;
    this.step(seconds);
  }

  /** Fails unless that was said within so many seconds of what it says now. */
  assertNear(atMs, what, seconds = 5) {
    const off = Math.round((atMs - this.nowMs) / 1_000);
    assert.ok(Math.abs(off) <= seconds, `${what} is ${off} s off the clock`);
  }

  #write() {
    const numbers = Buffer.alloc(16);
    numbers.writeBigInt64LE(BigInt(this.#wallMs) * NS_OF_MS, 0);
    numbers.writeBigInt64LE(BigInt(this.#sleptMs) * NS_OF_MS, 8);
    // In place: it is mapped.
    writeFileSync(this.#file, numbers, { flag: existsSync(this.#file) ? 'r+' : 'w' });
  }
}
