// A benchmark's command line: `--help` lists the options, one that is wrong gets one line.

import { parseArgs } from 'node:util';

function usage(program, options) {
  const lines = Object.entries(options).map(([name, { type, default: usual }]) => {
    const value = type === 'boolean' ? '' : ` ${usual === undefined ? '…' : usual || '\'\''}`;
    return `  --${name}${value}`;
  });
  return [`${program} [OPTIONS]; each with its default; bench/README.md says what they mean`,
    ...lines, ''].join('\n');
}

/** The values of `options`, in the form that `parseArgs` of node:util takes them. */
export function readOptions(program, options) {
  try {
    const help = { type: 'boolean', default: false };
    const { help: isAsked, ...values } = parseArgs({ options: { ...options, help } }).values;
    if (!isAsked) return values;
    process.stdout.write(usage(program, options));
    process.exit(0);
  } catch (error) {
    process.stderr.write(`${program}: ${error.message} (--help lists them)\n`);
    process.exit(1);
  }
}
