// One thread of a process stands still while the others run (threads/hold.c): what a worker looks
// like that waits for a processor, a page or a lock for too long. It takes root and gcc.

import { execFileSync, spawn } from 'node:child_process';
import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const SOURCE = fileURLToPath(new URL('../threads/hold.c', import.meta.url));
const GONE = 3;

/** Compiles the program that holds threads into `folder`; gives its path. */
export function makeHolder(folder) {
  const program = join(folder, 'hold');
  execFileSync('gcc', ['-std=gnu11', '-O2', '-Wall', '-Wextra', '-Werror', '-o', program, SOURCE]);
  return program;
}

/** The threads of a process that have such names, by name; none if it is gone. */
export function threadsOf(pid, pattern) {
  const found = new Map();
  try {
    for (const task of readdirSync(`/proc/${pid}/task`)) {
      const name = readFileSync(`/proc/${pid}/task/${task}/comm`, 'utf8').trim();
      if (pattern.test(name)) found.set(name, Number(task));
    }
  } catch (error) {
    if (error.code !== 'ENOENT' && error.code !== 'ESRCH') throw error;
  }
  return found;
}

/** Holds a thread for `ms`; gives whether it was there to the end. */
export function hold(program, thread, ms) {
  const child = spawn(program, [`${thread}`, `${ms}`], { stdio: ['ignore', 'ignore', 'pipe'] });
  let text = '';
  child.stderr.on('data', (data) => { text += data; });
  return new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code) => {
      if (code === 0 || code === GONE) resolve(code === 0);
      else reject(new Error(`hold exited with ${code}: ${text}`));
    });
  });
}
