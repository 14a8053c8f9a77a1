// Reads source text for the rules: blanks out comments and literals so that a rule about code
// doesn't see words in prose, and measures functions.
//
// It is no parser. It knows just enough of each language's lexical shape, and the rules built on
// it are about lines and names, not about meaning.

import { dirname, join, normalize } from 'node:path/posix';

/** Replaces every character of `text` but the newlines by spaces. */
const blank = (text) => text.replace(/[^\n]/g, ' ');

const ERLANG_TOKENS = /%[^\n]*|"(?:\\[\s\S]|[^"\\])*"|\$\\?[\s\S]|'(?:\\[\s\S]|[^'\\\n])*'/g;
const RUST_TOKENS = new RegExp([
  /\/\/[^\n]*/, /\/\*[\s\S]*?\*\//, /b?r(#*)"[\s\S]*?"\1/, /b?"(?:\\[\s\S]|[^"\\])*"/,
  /b?'(?:\\[^\n]+?|[^\\'\n])'/,
].map((token) => token.source).join('|'), 'g');

/** Erlang without comments, strings and characters; quoted atoms keep their place and name. */
export function erlangCode(text) {
  return text.replace(ERLANG_TOKENS, (token) => (token[0] === "'" ? token : blank(token)));
}

/** Rust without comments, strings and characters. Lifetimes are left alone. */
export function rustCode(text) {
  return text.replace(RUST_TOKENS, blank);
}

export const lineOf = (text, index) => text.slice(0, index).split('\n').length;

/** Where the brace that opens at or after `from` closes; -1 if it doesn't. */
function closingBrace(code, from) {
  let depth = 0;
  for (let at = code.indexOf('{', from); at >= 0 && at < code.length; at += 1) {
    if (code[at] === '{') depth += 1;
    if (code[at] === '}') {
      depth -= 1;
      if (depth === 0) return at;
    }
  }
  return -1;
}

/** Rust code with its `#[cfg(test)]` items blanked out. */
export function withoutTests(code) {
  let result = code;
  for (const match of code.matchAll(/#\[cfg\((?:all\()?test\b[^\]]*\]/g)) {
    const brace = code.indexOf('{', match.index);
    const semicolon = code.indexOf(';', match.index);
    const isDeclaration = semicolon >= 0 && (brace < 0 || semicolon < brace);
    const end = isDeclaration ? semicolon : closingBrace(code, match.index);
    if (end < 0) continue;
    result = result.slice(0, match.index) + blank(result.slice(match.index, end + 1))
      + result.slice(end + 1);
  }
  return result;
}

/** The functions of Rust code: `{name, line, lines}`. */
export function rustFunctions(code) {
  const found = [];
  for (const match of code.matchAll(/\bfn\s+([a-z_][a-z0-9_]*)/gi)) {
    const brace = code.indexOf('{', match.index);
    const semicolon = code.slice(match.index).search(/;\s*$/m);
    if (brace < 0 || (semicolon >= 0 && match.index + semicolon < brace)) continue;
    const end = closingBrace(code, match.index);
    const line = lineOf(code, match.index);
    if (end >= 0) found.push({ name: match[1], line, lines: lineOf(code, end) - line + 1 });
  }
  return found;
}

/** The functions of Erlang code, all clauses together: `{name, line, lines}`. */
export function erlangFunctions(code) {
  const found = [];
  let open = null;
  for (const [index, text] of code.split('\n').entries()) {
    const start = /^([a-z][A-Za-z0-9_@]*|'[^']+')\s*\(/.exec(text);
    if (start && open === null) open = { name: start[1], line: index + 1 };
    if (open !== null && /\.\s*$/.test(text)) {
      found.push({ ...open, lines: index + 2 - open.line });
      open = null;
    }
  }
  return found;
}

/**
 * The functions of other modules that Erlang code names, called or as `fun module:name/arity`:
 * `{module, line}`. Attributes but macros aren't code that runs: the types in them don't count.
 */
export function erlangCalled(code) {
  return erlangNamed(code.replace(/^-(?!define)[a-z][\s\S]*?\.[ \t]*$/gm, blank));
}

/** The same, and other modules whose types are named or whose behaviour is implemented. */
export function erlangNamed(code) {
  const named = /(?<![\w'@])([a-z]\w*):[a-z]\w*\s*[(/]|^-behaviour\((\w+)\)/gm;
  return [...code.matchAll(named)]
    .map((match) => ({ module: match[1] ?? match[2], line: lineOf(code, match.index) }));
}

/** The names that an Erlang module exports, as `name/arity`. */
export function erlangExports(code) {
  const found = [];
  for (const match of code.matchAll(/^-export\(\[([^\]]*)\]\)/gm)) {
    found.push(...match[1].split(',').map((name) => name.trim()).filter(Boolean));
  }
  return found;
}

/** The links of a document to files: `{target, file, line}`; `file` is the path that is meant. */
export function* documentLinks(path, text) {
  const prose = text.replace(/```[\s\S]*?```|`[^`\n]*`/g, blank);
  for (const match of prose.matchAll(/\]\(([^)\s]+)\)/g)) {
    const target = match[1].split('#')[0];
    if (target === '' || /^[a-z]+:/.test(target)) continue;
    const file = normalize(join(dirname(path), target)).replace(/\/$/, '');
    yield { target: match[1], file, line: lineOf(prose, match.index) };
  }
}
