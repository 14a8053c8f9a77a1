// llhttp's test requests against the API listener of a live Halley.
//
// The corpus is Markdown: under each heading the bytes of a connection and the log of what llhttp
// makes of them. Of the log only this is read: is there an error, and how many messages were
// complete before. Left out are the tests of llhttp's lenient modes and of its pauses: they are
// about its programming interface.

import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { start } from '../lib/halley.mjs';
import { converse } from './lib/conversation.mjs';

/** Not errors of the sender: what llhttp says where something else than HTTP/1.1 goes on. */
const PAUSES = new Set(['22', '23']);

/** The bytes that a block stands for, by the rules that the corpus' own runner has. */
function bytesOf(block) {
  const text = block.replace(/\n$/, '').replace(/\\(\r\n|\r|\n)/g, '')
    .replace(/\r\n|\r|\n/g, '\r\n')
    .replace(/\\r/g, '\r').replace(/\\n/g, '\n').replace(/\\t/g, '\t').replace(/\\f/g, '\f')
    .replace(/\\x([0-9a-fA-F]+)/g, (_, hex) => String.fromCharCode(parseInt(hex, 16)))
    .replace(/\\([0-7]{1,3})/g, (_, octal) => String.fromCharCode(parseInt(octal, 8)));
  return Buffer.from(text);
}

/**
 * What the log says that a reader does: `taken` so many, or `refused`. Halley knows no resource of
 * the corpus and may say so when a head is complete, so `most` counts the heads.
 */
function wanted(log) {
  const error = /error code=(\d+) reason="(.*)"/.exec(log);
  const complete = log.split('message complete').length - 1;
  if (error && !PAUSES.has(error[1])) return { want: 'refused', about: error[2] };
  const most = log.split('headers complete').length - 1;
  return { want: `taken ${complete}`, most, about: error?.[2] ?? '' };
}

const HEADING_OR_TEST =
  /^#+ (.*)$|<!-- meta=(\{.*?\}) -->\s*```http\n([\s\S]*?)```\s*```log\n([\s\S]*?)```/gm;

function conversationsOf(folder, file) {
  const text = readFileSync(join(folder, file), 'utf8');
  const found = [];
  let heading = '';
  for (const [, title, meta, block, log] of text.matchAll(HEADING_OR_TEST)) {
    if (title !== undefined) heading = title;
    else {
      const { type, pause, skipBody } = JSON.parse(meta);
      if (type !== 'request' || pause || skipBody) continue;
      const methods = [...log.matchAll(/span\[method\]="(.*)"/g)].map((match) => match[1]);
      const heads = methods.flatMap((method, n) => (method === 'HEAD' ? [n] : []));
      const name = `${file.replace('.md', '')}/${heading.replaceAll('`', '')}`;
      found.push({ name, bytes: bytesOf(block), heads, ...wanted(log) });
    }
  }
  return found;
}

/** Cases are named `<file>/<heading>`, the second of one heading with ` (2)` behind it. */
export async function run({ llhttp }) {
  const files = readdirSync(llhttp).filter((file) => file.endsWith('.md')).sort();
  const seen = new Map();
  const conversations = files.flatMap((file) => conversationsOf(llhttp, file)).map((one) => {
    seen.set(one.name, (seen.get(one.name) ?? 0) + 1);
    const count = seen.get(one.name);
    return count === 1 ? one : { ...one, name: `${one.name} (${count})` };
  });
  const halley = await start();
  try {
    return await converse(halley.apiPort, conversations);
  } finally {
    await halley.stop();
  }
}
