// halley-load as a child process.

import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

const PROGRAM = process.env.HALLEY_LOAD
  ?? fileURLToPath(new URL('../../edge/target/release/halley-load', import.meta.url));

/** Runs a subcommand to its end and gives what its `--json` says. */
export async function load(subcommand, ...args) {
  const folder = mkdtempSync(join(tmpdir(), 'halley-bench-'));
  const json = join(folder, 'result.json');
  try {
    const child = spawn(PROGRAM, [subcommand, ...args, '--json', json], {
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    let stderr = '';
    child.stderr.on('data', (data) => { stderr += data; });
    const code = await new Promise((resolve) => { child.once('close', resolve); });
    if (code !== 0) throw new Error(`halley-load ${subcommand}: exit ${code}: ${stderr}`);
    return JSON.parse(readFileSync(json, 'utf8'));
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** `halley-load clients --control`: connections that are held while other things happen. */
export class Clients {
  constructor(...args) {
    this.child = spawn(PROGRAM, ['clients', '--control', ...args], {
      stdio: ['pipe', 'pipe', 'ignore'],
    });
    this.answers = createInterface({ input: this.child.stdout })[Symbol.asyncIterator]();
  }

  async ask(command) {
    this.child.stdin.write(`${command}\n`);
    const { value, done } = await this.answers.next();
    if (done) throw new Error(`the clients ended at "${command}"`);
    return JSON.parse(value);
  }

  async quit() {
    const closed = new Promise((resolve) => { this.child.once('close', resolve); });
    this.child.stdin.end('quit\n');
    await closed;
  }
}
