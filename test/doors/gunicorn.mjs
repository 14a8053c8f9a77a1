// The request corpora of gunicorn's own tests against the API listener of a live Halley.
//
// A case is a `.http` file; the `.py` of the same name, which isn't run here, has the number of its
// requests, or that it is an error. Some need an option of gunicorn. Halley has no such option:
// where it does as gunicorn does without the option, that is a difference with this reason.

import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { start } from '../lib/halley.mjs';
import { converse } from './lib/conversation.mjs';

/** The bytes that a `.http` file stands for: its own line ends are for people. */
const bytesOf = (text) => Buffer.from(text.replaceAll('\n', '').replaceAll('\\r\\n', '\r\n')
  .replaceAll('\\0', '\0').replaceAll('\\n', '\n').replaceAll('\\t', '\t'), 'latin1');

function conversation(folder, kind, name) {
  const read = (ending) => readFileSync(join(folder, kind, `${name}.${ending}`), 'latin1');
  const code = read('py');
  const methods = [...code.matchAll(/"method": *"([^"]*)"/g)].map((match) => match[1]);
  const heads = methods.flatMap((method, n) => (method === 'HEAD' ? [n] : []));
  const options = [...code.matchAll(/cfg\.set\(['"](\w+)['"], *(.*)\)/g)]
    .map((match) => `${match[1]} = ${match[2]}`);
  return { name: `${kind}/${name}`, bytes: bytesOf(read('http')), heads,
    want: kind === 'valid' ? `taken ${methods.length}` : 'refused', about: options.join(', ') };
}

/** Cases are named `valid/<file>` and `invalid/<file>`. */
export async function run({ gunicorn }) {
  const conversations = ['valid', 'invalid'].flatMap((kind) =>
    readdirSync(join(gunicorn, kind)).filter((file) => file.endsWith('.http')).sort()
      .map((file) => conversation(gunicorn, kind, file.replace('.http', ''))));
  const halley = await start();
  try {
    return await converse(halley.apiPort, conversations);
  } finally {
    await halley.stop();
  }
}
