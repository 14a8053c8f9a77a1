// Progress for a person, on stderr: lines that stay, and on a terminal one that is overwritten.

const began = Date.now();
const CLEAR = '\r\x1b[2K';

let live = '';

const stamped = (text) => {
  const seconds = String(Math.round((Date.now() - began) / 1000)).padStart(4);
  return `${seconds} s  ${text}`;
};

export function say(text) {
  process.stderr.write(`${live === '' ? '' : CLEAR}${stamped(text)}\n${live}`);
}

/** Shows `text` in the place of the last such; '' takes it away. Nothing without a terminal. */
export function sayNow(text) {
  if (!process.stderr.isTTY) return;
  const columns = process.stderr.columns ?? 100;
  live = text === '' ? '' : stamped(text).slice(0, columns - 1);
  process.stderr.write(`${CLEAR}${live}`);
}
