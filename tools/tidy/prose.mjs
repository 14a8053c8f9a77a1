// English that is read once: six patterns that make a reader go back. They are looked for in
// documents and in the headers of modules. Some sentences need the word, so a single finding is no
// failure: `node tools/tidy/prose.mjs [PATH…]` shows them all, and tidy fails when there are more
// than `MOST` of an area. Lower that number when you have rewritten some.
//
//   headless   "What is kept goes …", "Who is away gets …": a clause as a subject
//   nobody     "nobody", "somebody" as actors: name the actor
//   none       "X is none" ("there is none" is plain), "is no … any more"
//   beside     "behind", "beside" for after, with, next to; not a link that is behind
//   told       "told", "said", "asked", "taken for" for sent, set, requested, treated as
//   passive    "it is said that", "there is told": a passive without an actor

import { fileURLToPath } from 'node:url';
import { lineOf } from './source.mjs';
import { readTree } from './tree.mjs';

/** How many findings an area may have. Their number may only fall. */
export const MOST = { documents: 12, headers: 17, tests: 3 };

/** Servers that others stand behind, in the plain sense. */
const BEFORE = 'proxy|proxies|nginx|haproxy|caddy|nat|firewall|balancer|tls';
/** "The link is behind", "left behind": late, where no object follows. */
const LATE = String.raw`(?:\b(?:is|are|was|were|be|been|isn't|aren't|wasn't|falls?|fell|left|far`
  + String.raw`|mark) |\*)`;
const OBJECT = String.raw` (?:the|an?|its?|this|that|these|those|them|him|her|all|each|every|one`
  + String.raw`|both|others?|another|some|what|which|who|\d|[A-Z\`])`;

const PATTERNS = {
  headless: /(?:^|(?<=[.:;!?] )|(?<=\| ))(?:What|Who|Whom)\b(?![^.!\n|]*\?)(?= )/gm,
  nobody: /\b(?:nobody|somebody)\b/gi,
  none: /(?<!\bthere )\b(?:is|are) none\b|\b(?:is|are|was|were) no [\w -]{1,20} any more\b/g,
  beside: new RegExp(String.raw`(?:\b[Bb]eside|(?<!${LATE})\b[Bb]ehind|\b[Bb]ehind(?=${OBJECT}))\b`
    + String.raw`(?! (?:\w+ ){0,2}(?:${BEFORE})\b)`, 'g'),
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
  const docstring = path.endsWith('.py') && /^(?:#.*\n)*"""[\s\S]*?"""/.exec(text)?.[0];
  if (docstring) return docstring.replaceAll('"""', '   ').replace(/`[^`\n]*`|"[^"\n]*"/g, blank);
  const header = /^(?:#!.*\n)?(?:(?:%%|\/\/!?|#).*\n)*/.exec(text)[0];
  // A quote, of a clause for one, is counted where it stands by itself.
  return header.replace(/^(?:%%|\/\/!?|#) */gm, '').replace(/`[^`'\n]*['`]|"[^"\n]*"/g, blank);
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

/** Which number of `MOST` a file counts for. */
export function areaOf(path) {
  if (isDocument(path)) return 'documents';
  const isTest = /(?:^|\/)tests?\/|\.test\.\w+$|_tests?\.|^bench\/|^tools\//.test(path);
  return isTest ? 'tests' : 'headers';
}

/** How many findings each area has. */
export function proseCounts(tree) {
  const counts = { documents: 0, headers: 0, tests: 0 };
  for (const { path } of proseFindings(tree)) counts[areaOf(path)] += 1;
  return counts;
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
  if (wanted.length === 0) console.log(proseCounts(readTree(process.cwd())), 'at most', MOST);
}
