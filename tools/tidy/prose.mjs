// English that is read once: six patterns that make a reader go back. They are looked for in
// documents and in the headers of modules. A finding is a warning, since some sentences need the
// word: `node tools/tidy/prose.mjs [PATH…]` shows them all, tidy itself shows how many there are.
//
//   headless   "What is kept goes …", "Who is away gets …": a clause as a subject
//   nobody     "nobody", "somebody" as actors: name the actor
//   none       "is none", "is no … any more"
//   beside     "behind", "beside" for after, with, next to
//   told       "told", "said", "asked", "taken for" for sent, set, requested, treated as
//   passive    "it is said that", "there is told": a passive without an actor

import { fileURLToPath } from 'node:url';
import { lineOf } from './source.mjs';
import { readTree } from './tree.mjs';

/** Servers that others stand behind, in the plain sense. */
const BEFORE = 'proxy|proxies|nginx|haproxy|caddy|nat|firewall|balancer|tls';

const PATTERNS = {
  headless: /(?:^|(?<=[.:;!?] )|(?<=\| ))(?:What|Who|Whom)\b(?![^.!\n|]*\?)(?= )/gm,
  nobody: /\b(?:nobody|somebody)\b/gi,
  none: /\b(?:is|are) none\b|\b(?:is|are|was|were) no [\w -]{1,20} any more\b/g,
  beside: new RegExp(String.raw`\b(?:behind|beside)\b(?! (?:\w+ ){0,2}(?:${BEFORE})\b)`, 'gi'),
  told: new RegExp(String.raw`\b(?:is|are|was|were|be|been|being|gets?) (?:also |then |not )?`
    + String.raw`(?:told|said|asked|taken for)\b`, 'g'),
  passive: /\b(?:it|there) (?:is|was) (?:said|told|asked|known|seen|had|got|meant)\b/gi,
};

const isDocument = (path) => path.endsWith('.md')
  && !path.startsWith('bench/results/') && !path.startsWith('.');
const isModule = (path) =>
  /^(?:apps|edge|clients|console|tools|test|bench)\/.*\.(?:erl|rs|ts|mjs|py)$/.test(path);

const blank = (text) => text.replace(/[^\n]/g, ' ');

/** The prose of a file, the rest blank, so that lines stay where they are. */
function proseOf(path, text) {
  if (isDocument(path)) return text.replace(/```[\s\S]*?```|`[^`\n]*`|\]\([^)]*\)/g, blank);
  if (!isModule(path)) return '';
  const header = /^(?:#!.*\n)?(?:(?:%%|\/\/!?|#).*\n)*/.exec(text)[0];
  return header.replace(/^(?:%%|\/\/!?|#) */gm, '').replace(/`[^`'\n]*['`]/g, blank);
}

/** Every place of a pattern: `{pattern, path, line, text}`. */
export function* proseFindings(tree) {
  for (const [path, text] of tree) {
    const prose = proseOf(path, text);
    for (const [pattern, regex] of Object.entries(PATTERNS)) {
      for (const match of prose.matchAll(regex)) {
        const line = lineOf(prose, match.index);
        yield { pattern, path, line, text: text.split('\n')[line - 1].trim() };
      }
    }
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const wanted = process.argv.slice(2);
  const counts = new Map();
  for (const { pattern, path, line, text } of proseFindings(readTree(process.cwd()))) {
    if (wanted.length > 0 && !wanted.some((prefix) => path.startsWith(prefix))) continue;
    counts.set(pattern, (counts.get(pattern) ?? 0) + 1);
    console.log(`${path}:${line}: [${pattern}] ${text.slice(0, 160)}`);
  }
  console.log([...counts].map(([pattern, count]) => `${pattern} ${count}`).join(', '));
}
