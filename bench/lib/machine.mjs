// The conditions of a figure besides the code.

import { execFileSync } from 'node:child_process';
import { cpus, release as kernel, totalmem } from 'node:os';

/** What another run wrote is no change of what is measured. */
const MEASURED = [':/', ':(exclude,top)bench/results'];

function first(command, ...args) {
  try {
    return execFileSync(command, args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] })
      .split('\n')[0].trim();
  } catch {
    return 'unknown';
  }
}

export function describeMachine() {
  const release = 'io:format("OTP ~s", [erlang:system_info(otp_release)]), halt().';
  const otp = ['-noinput', '-eval', release];
  return {
    cores: cpus().length,
    processor: cpus()[0].model.trim(),
    memory_gb: Math.round(totalmem() / 2 ** 30),
    kernel: kernel(),
    erlang: first('erl', ...otp),
    rust: first('rustc', '--version'),
    commit: `${first('git', 'rev-parse', '--short', 'HEAD')}`
      + (first('git', 'status', '--porcelain', '-uno', '--', ...MEASURED) === '' ? ''
        : ' with changes'),
  };
}
