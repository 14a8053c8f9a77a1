// Progress for a person, on stderr.

const began = Date.now();

export function say(text) {
  const seconds = String(Math.round((Date.now() - began) / 1000)).padStart(4);
  process.stderr.write(`${seconds} s  ${text}\n`);
}
