// The house rules. Each is a function of the tree (`Map` of path to text) that yields findings
// `{rule, path, line, message}`. The purpose of a rule stands above it; the words are style.md's.

import { circlesOf } from './circles.mjs';
import { edgeFindings } from './edge.mjs';
import { doorFindings, folderFindings, modulesOf } from './parts.mjs';
import { resultFindings } from './results.mjs';
import {
  documentLinks, erlangCode, erlangExports, erlangFunctions, lineOf, rustCode,
  rustFunctions, withoutTests,
} from './source.mjs';

const COLUMNS_MAX = 100;
/** Beyond it a look is due: is this still one idea? */
const FILE_LINES = 400;
const FILE_LINES_MAX = 500;
const INLINE_TESTS = /^#\[cfg\(test\)\]\nmod \w+ \{$/m;
const FUNCTION_LINES_MAX = 60;
const EXPORTS_MAX = 15;

const isErlang = (path) => /\.(erl|hrl)$/.test(path);
const isRust = (path) => /\.rs$/.test(path);
/** What `make console` writes: one script on a few lines. Its sources are under the rules. */
const isBuilt = (path) => path.startsWith('apps/halley_api/priv/console/');
const isScript = (path) => !isBuilt(path)
  && (/\.(mjs|js|tsx?|sh|py)$/.test(path) || path === '.ci/run');
const isCode = (path) => isErlang(path) || isRust(path) || isScript(path)
  || !isBuilt(path) && /\.(config|src|in|escript|html|css|schema)$/.test(path);
const isErlangSource = (path) => /^apps\/[^/]+\/src\/.*\.erl$/.test(path);
const isRustTest = (path) => /\/(tests|benches|fuzz|fuzz_targets)\//.test(path)
  || /(^|\/|_)tests?\.rs$/.test(path);

function* matches(rule, path, text, pattern, message) {
  for (const match of text.matchAll(pattern)) {
    yield { rule, path, line: lineOf(text, match.index), message: message(match) };
  }
}

/** Text that shows the same in every editor and review. */
export function* layout(tree) {
  for (const [path, text] of tree) {
    if (!isCode(path)) continue;
    const lines = text.split('\n');
    for (const [index, line] of lines.entries()) {
      const at = { rule: 'layout', path, line: index + 1 };
      if ([...line].length > COLUMNS_MAX) {
        yield { ...at, message: `${[...line].length} columns; ${COLUMNS_MAX} at most` };
      }
      if (/[ \t\r]$/.test(line)) yield { ...at, message: 'space at the end of the line' };
      if (line.includes('\t')) yield { ...at, message: 'a tab' };
    }
    if (text !== '' && !text.endsWith('\n')) {
      yield { rule: 'layout', path, line: lines.length, message: 'no newline at the end' };
    }
  }
}

/** Lines without the tests at the end. */
function codeLines(path, text) {
  const [code] = isRust(path) ? text.split(INLINE_TESTS) : [text];
  return code.split('\n').length - 1;
}

/** Rooms stay small: files. */
export function* fileLines(tree) {
  for (const [path, text] of tree) {
    const lines = codeLines(path, text);
    if ((isErlang(path) || isRust(path) || isScript(path)) && lines > FILE_LINES) {
      yield { rule: 'file-lines', path, line: lines, isWarning: lines <= FILE_LINES_MAX,
        message: `${lines} lines; ${FILE_LINES} are much, ${FILE_LINES_MAX} the most` };
    }
  }
}

/** Rooms stay small: functions. */
export function* functionLines(tree) {
  for (const [path, text] of tree) {
    let functions = [];
    if (isErlang(path)) functions = erlangFunctions(erlangCode(text));
    else if (isRust(path)) functions = rustFunctions(rustCode(text));
    for (const { name, line, lines } of functions) {
      if (lines > FUNCTION_LINES_MAX) {
        yield { rule: 'function-lines', path, line,
          message: `${name} has ${lines} lines; ${FUNCTION_LINES_MAX} at most` };
      }
    }
  }
}

/** A module with many doors is several modules. */
export function* exportCount(tree) {
  for (const [path, text] of tree) {
    if (!isErlangSource(path)) continue;
    const count = erlangExports(erlangCode(text)).length;
    if (count > EXPORTS_MAX) {
      yield { rule: 'exports', path, line: 1, message: `${count} exports; ${EXPORTS_MAX} at most` };
    }
  }
}

/** Input must not make atoms, functions or terms of its choice. */
export function* erlangCalls(tree) {
  for (const [path, text] of tree) {
    if (!isErlangSource(path)) continue;
    const code = erlangCode(text);
    yield* matches('erlang-calls', path, code,
      /\b(list_to_atom|binary_to_atom|list_to_existing_atom\s*\(\s*binary_to_list)\b/g,
      (match) => `${match[1]}: atoms are never collected; look the word up in a list`);
    yield* matches('erlang-calls', path, code, /\bbinary_to_term\s*\(([^(),]|\([^()]*\))*\)/g,
      () => 'binary_to_term without [safe]');
  }
}

/** A panic on input is a denial of service for every connection of the worker. */
export function* rustCalls(tree) {
  for (const [path, text] of tree) {
    if (!isRust(path) || isRustTest(path)) continue;
    yield* matches('rust-calls', path, withoutTests(rustCode(text)),
      /\.(unwrap|expect|unwrap_err|expect_err)\s*\(|\b(panic|todo|unimplemented)!/g,
      (match) => `${match[1] ?? match[2]} outside tests: say in the type what can go wrong`);
  }
}

/**
 * The wall's clock may be set at any moment, so it decides nothing (docs/internals/clocks.md). Who
 * wants to say what time it is asks the one module of its side, which asks the machine.
 */
const CLOCK_MODULES = ['apps/halley/src/base/halley_clock.erl', 'edge/halley-edge/src/clock.rs',
  'edge/halley-cli/src/clock.rs'];
const WALL_IN_ERLANG = new RegExp([
  '\\b(?:erlang|os)\\s*:\\s*(?:system_time|timestamp)\\s*\\(',
  '\\berlang\\s*:\\s*(?:now|time_offset|universaltime|localtime|date|time)\\s*\\(',
  '\\bcalendar\\s*:\\s*(?:universal|local)_time\\s*\\(',
].join('|'), 'g');
const WALL_IN_RUST = /\bSystemTime\b|\bUNIX_EPOCH\b|\bCLOCK_(?:REALTIME|TAI)\w*/g;

export function* clocks(tree) {
  for (const [path, text] of tree) {
    if (CLOCK_MODULES.includes(path)) continue;
    if (isErlangSource(path)) {
      yield* matches('clocks', path, erlangCode(text), WALL_IN_ERLANG,
        () => 'the wall\'s clock outside halley_clock: ask that, or erlang:monotonic_time/1');
    } else if (isRust(path) && path.startsWith('edge/') && !isRustTest(path)) {
      yield* matches('clocks', path, withoutTests(rustCode(text)), WALL_IN_RUST,
        () => 'the wall\'s clock outside clock.rs: ask that, or Instant');
    }
  }
}

/** One crate holds all `unsafe`. */
export function* rustUnsafe(tree) {
  for (const [path, text] of tree) {
    if (!isRust(path) || path.startsWith('edge/halley-sys/')) continue;
    yield* matches('rust-unsafe', path, rustCode(text), /\bunsafe\b/g,
      () => 'unsafe outside halley-sys');
  }
}

// Spelled in two parts, so that this file passes its own rule.
const MARK_WORDS = ['TO' + 'DO', 'FIX' + 'ME', 'X' + 'XX', 'HA' + 'CK'];
const MARKS = new RegExp(`\\b(${MARK_WORDS.join('|')})\\b`, 'g');

/** What is left to do is an issue, not a remark. */
export function* marks(tree) {
  for (const [path, text] of tree) {
    if (!isCode(path) && path !== 'Makefile') continue;
    yield* matches('marks', path, text, MARKS, (match) => `${match[1]} left in the text`);
  }
}

const FORBIDDEN_ARROWS = {
  epgsql: /\b((?:halley|ketama|teleport)(?:_[a-z0-9_]+)?)\s*:\s*[a-z]/g,
  ketama: /\b((?:halley|epgsql|teleport)(?:_[a-z0-9_]+)?)\s*:\s*[a-z]/g,
  teleport: /\b((?:halley|epgsql|ketama)(?:_[a-z0-9_]+)?)\s*:\s*[a-z]/g,
  halley:
    /\b(halley_(?:edge|api|postgres|hooks|backends|mochiweb|remote)(?:_[a-z0-9_]+)?)\s*:\s*[a-z]/g,
  halley_edge: /\b(halley_(?:api|postgres|hooks|backends|remote)(?:_[a-z0-9_]+)?)\s*:\s*[a-z]/g,
  halley_api: /\b(halley_(?:edge|postgres|hooks|backends|remote)(?:_[a-z0-9_]+)?)\s*:\s*[a-z]/g,
  halley_hooks: /\b(halley_(?:edge|api|postgres|backends|remote)(?:_[a-z0-9_]+)?)\s*:\s*[a-z]/g,
  halley_postgres: /\b(halley_(?:edge|api|hooks|backends|remote)(?:_[a-z0-9_]+)?)\s*:\s*[a-z]/g,
  halley_backends: /\b(halley_(?:edge|api|postgres|hooks|remote)(?:_[a-z0-9_]+)?)\s*:\s*[a-z]/g,
  halley_mochiweb:
    /\b(halley_(?:edge|api|postgres|hooks|backends|remote)(?:_[a-z0-9_]+)?)\s*:\s*[a-z]/g,
  halley_remote: /\b((?:halley|epgsql|ketama)(?!_remote)(?:_[a-z0-9_]+)?)\s*:\s*[a-z]/g,
};

const CRATE_KNOWS = {
  'halley-wire': [], 'halley-link': [], 'halley-token': [], 'halley-sys': [],
  'halley-edge': ['halley-wire', 'halley-link', 'halley-token', 'halley-sys'],
  'halley-load': ['halley-wire', 'halley-link', 'halley-sys'],
  'halley-report': [],
  'halley-cli': ['halley-token'],
};
const PURE_CRATES = ['halley-wire', 'halley-link', 'halley-token'];
const IO_CRATES = ['mio', 'socket2', 'libc', 'tokio'];

/** Who may know whom (docs/internals/ARCHITECTURE.md). */
export function* arrows(tree) {
  for (const [path, text] of tree) {
    const app = /^apps\/([^/]+)\/src\/.*\.(erl|hrl)$/.exec(path)?.[1];
    if (app in FORBIDDEN_ARROWS) {
      yield* matches('arrows', path, erlangCode(text), FORBIDDEN_ARROWS[app],
        (match) => `${app} must not call ${match[1]}`);
    }
    const crate = /^edge\/([^/]+)\/Cargo\.toml$/.exec(path)?.[1];
    if (crate in CRATE_KNOWS) {
      const isPure = PURE_CRATES.includes(crate);
      for (const [index, line] of text.split('\n').entries()) {
        const name = /^([a-z0-9-]+)\s*(=|\.workspace)/.exec(line)?.[1] ?? '';
        const isStranger = name.startsWith('halley-') && !CRATE_KNOWS[crate].includes(name);
        if (isStranger || (isPure && IO_CRATES.includes(name))) {
          yield { rule: 'arrows', path, line: index + 1,
            message: `${crate} must not know ${name}` };
        }
      }
    }
  }
}

/**
 * Modules of an application don't call each other in a circle: what one of them does can be
 * understood, tested and moved with those below it alone. Who must be told of something by who is
 * below it hands down a fun. Calls by a name that is only known at run time don't count, nor do
 * types.
 */
export function* circles(tree) {
  for (const modules of modulesOf(tree).values()) {
    const graph = new Map([...modules].map(([module, { calls }]) =>
      [module, calls.filter((call) => modules.has(call.module) && call.module !== module)]));
    for (const circle of circlesOf(graph)) {
      const [first, second] = circle;
      const { line } = graph.get(first).find((call) => call.module === second);
      yield { rule: 'circles', path: modules.get(first).path, line,
        message: `modules that call each other: ${[...circle, first].join(' -> ')}` };
    }
  }
}

/** The brain's folders name those below them alone; what is in them is asked by its doors. */
export function* folders(tree) {
  for (const finding of folderFindings(tree)) yield { rule: 'folders', ...finding };
}

export function* doors(tree) {
  for (const finding of doorFindings(tree)) yield { rule: 'doors', ...finding };
}

/** The edge's parts know those below them alone (docs/internals/edge.md). */
export function* edgeParts(tree) {
  for (const finding of edgeFindings(tree)) yield { rule: 'edge-parts', ...finding };
}

/** A reader who opens a file learns first what it is for. */
export function* headers(tree) {
  for (const [path, text] of tree) {
    let isGood = true;
    if (/\.erl$/.test(path)) isGood = /^(#!.*\n)?%%+ \S/.test(text);
    else if (isRust(path)) isGood = /^(\/\/[^\n]*\n|#!\[[^\n]*\n|\s*\n)*\/\/! \S/.test(text);
    else if (/\.(mjs|js|ts)$/.test(path)) isGood = /^(#!.*\n)?(\/\/ \S|\/\*)/.test(text);
    else if (/\.sh$/.test(path)) isGood = /^#!.*\n# \S/.test(text);
    if (!isGood) {
      yield { rule: 'headers', path, line: 1,
        message: 'no comment at the top that says what it is' };
    }
  }
}

/** A link in the documents leads somewhere. */
export function* links(tree) {
  const folders = new Set([...tree.keys()].flatMap((path) => {
    const parts = path.split('/').slice(0, -1);
    return parts.map((_, index) => parts.slice(0, index + 1).join('/'));
  }));
  for (const [path, text] of tree) {
    if (!path.endsWith('.md')) continue;
    for (const { target, file, line } of documentLinks(path, text)) {
      if (!tree.has(file) && !folders.has(file) && file !== '.') {
        yield { rule: 'links', path, line, message: `${target} leads nowhere` };
      }
    }
  }
}

/** What was measured is found, belongs to a page, and is what it was (bench/README.md). */
export function* results(tree) {
  for (const finding of resultFindings(tree)) yield { rule: 'results', ...finding };
}

/** A picture that no page shows is weight. */
export function* pictures(tree) {
  const pages = [...tree].filter(([path]) => path.endsWith('.md')).map(([, text]) => text);
  for (const path of tree.keys()) {
    if (!path.startsWith('docs/images/')) continue;
    const file = path.slice('docs/'.length);
    if (!pages.some((text) => text.includes(file))) {
      yield { rule: 'pictures', path, line: 1, message: 'no page shows it: show it, or remove it' };
    }
  }
}

/** "Every frame has a vector in `vectors/`, read by the suites of both languages." */
export function* vectors(tree) {
  const path = 'protocol/link.md';
  const text = tree.get(path) ?? '';
  const files = [...tree.keys()].filter((name) => name.startsWith('protocol/vectors/'))
    .map((name) => name.slice('protocol/vectors/'.length).toLowerCase().split('.')[0]);
  for (const match of text.matchAll(/^\| 0x[0-9a-f]{2} \| ([A-Z_]+) \|/gm)) {
    if (!files.includes(match[1].toLowerCase())) {
      yield { rule: 'vectors', path, line: lineOf(text, match.index),
        message: `${match[1]} has no vector in protocol/vectors/` };
    }
  }
}

export const RULES = [
  layout, fileLines, functionLines, exportCount, erlangCalls, rustCalls, clocks, rustUnsafe, marks,
  arrows, circles, folders, doors, edgeParts, headers, links, pictures, results, vectors,
];

/** All findings of all rules, in the order of files and lines. */
export function findings(tree) {
  const found = RULES.flatMap((rule) => [...rule(tree)]);
  return found.sort((a, b) => a.path.localeCompare(b.path) || a.line - b.line);
}

/**
 * Splits findings by the listed exceptions (`"<rule> <path>": "<reason>"`). An exception that
 * nothing needs, or that gives no reason, is a finding too.
 */
export function judge(found, exceptions) {
  const keyOf = ({ rule, path }) => `${rule} ${path}`;
  const needed = new Set(found.map(keyOf));
  const bad = found.filter((finding) => !(keyOf(finding) in exceptions));
  for (const [key, reason] of Object.entries(exceptions)) {
    const at = { rule: 'exceptions', path: 'tools/tidy/exceptions.json', line: 1 };
    if (!needed.has(key)) bad.push({ ...at, message: `nothing needs: ${key}` });
    if (String(reason).trim().length < 20) bad.push({ ...at, message: `no reason for: ${key}` });
  }
  return bad;
}
