// The index of what was measured, bench/results/README.md: what is wrong with it, and what it
// should be.
//
// A result is a table, a text or a plot that a page cites, in one file. Raw data is compressed and
// lies next to its result: `x.json.gz` next to `x.md`, and in a folder next to its `table.md`. The
// index has a row for each result and one for each file of raw data. Checksums and citing pages are
// computed; the result's own text is proposed for a new row; the rest is written by hand and kept.
//
// It is not a judge of figures. It reads names, links and checksums.

import { basename, relative } from 'node:path/posix';
import { documentLinks } from './source.mjs';

const FOLDER = 'bench/results/';
export const INDEX = `${FOLDER}README.md`;
const COLUMNS = ['result', 'shows', 'date', 'commit', 'command', 'machine', 'cited by'];
const RAW_COLUMNS = ['raw data', 'SHA-256'];
const UNKNOWN = '?';
const MEND = '`bench/index` mends it';

const line = (cells) => `| ${cells.join(' | ')} |`;
const linkTo = (file) => `[${file.slice(FOLDER.length)}](${file.slice(FOLDER.length)})`;
const inCode = (text) => `\`${text}\``;

export const isPlainRaw = (path) => /\.(json|jsonl|csv|html)$/.test(path);
const isRaw = (path) => path.endsWith('.gz');

/** The files of bench/results by kind, in the order of their names. */
function filesOf(tree) {
  const all = [...tree.keys()].filter((path) => path.startsWith(FOLDER) && path !== INDEX).sort();
  return {
    raw: all.filter(isRaw),
    plain: all.filter(isPlainRaw),
    results: all.filter((path) => !isRaw(path) && !isPlainRaw(path)),
  };
}

/** Where raw data's result may be. */
function ownersOf(raw) {
  const folder = /^(bench\/results\/[^/]+)\//.exec(raw)?.[1];
  if (folder !== undefined) return [`${folder}/table.md`];
  const base = raw.replace(/\.[a-z]+\.gz$/, '');
  return [`${base}.md`, `${base}.txt`];
}

/** The rows of the table with these columns: `{line, file, cells}`; `line` counts from 1. */
function rowsOf(text, columns) {
  const lines = text.split('\n');
  const head = lines.indexOf(line(columns));
  const rows = [];
  for (let at = head + 2; head >= 0 && lines[at]?.startsWith('|'); at += 1) {
    const cells = lines[at].slice(2, -2).split(' | ').map((cell) => cell.trim());
    const target = /\]\(([^)]+)\)/.exec(cells[0])?.[1] ?? cells[0];
    rows.push({ line: at + 1, file: FOLDER + target, cells });
  }
  return rows;
}

/** For each path that a page outside bench/results links to, the pages. */
function citations(tree) {
  const cited = new Map();
  for (const [path, text] of tree) {
    if (!path.endsWith('.md') || path.startsWith(FOLDER)) continue;
    for (const { file } of documentLinks(path, text)) {
      if (!cited.has(file)) cited.set(file, new Set());
      cited.get(file).add(path);
    }
  }
  return cited;
}

function pagesCell(pages) {
  const name = (path) => (basename(path) === 'README.md' ? path : basename(path));
  return [...pages ?? []].sort().map((path) => `[${name(path)}](${relative(FOLDER, path)})`)
    .join(', ');
}

/** A row's cells but for the last, as far as the result's own text says them. */
function proposed(file, text) {
  const find = (pattern) => pattern.exec(text)?.slice(1).join(', ') ?? UNKNOWN;
  const command = find(/Made by `([^`]+)`/);
  return [
    linkTo(file),
    find(/^# (.+?)(?:, \d{4}-\d\d-\d\d)?$/m),
    /\d{4}-\d\d-\d\d/.exec(file)?.[0] ?? UNKNOWN,
    find(/\bcommit ([0-9a-f]{7,40}(?: with changes)?)/),
    command === UNKNOWN ? command : inCode(command),
    find(/^(\d+ cores \(.+\), \d+ GB)/m),
  ];
}

/** `text` with other rows in the table of these columns; without the table, it stays as it is. */
function withRows(text, columns, rows) {
  const lines = text.split('\n');
  const head = lines.indexOf(line(columns));
  if (head < 0) return text;
  lines.splice(head + 2, rowsOf(text, columns).length, ...rows.map(line));
  return lines.join('\n');
}

/** The index as it should be: every file has its row, pages and checksums are those of `tree`. */
export function updatedIndex(tree) {
  const before = tree.get(INDEX) ?? '';
  const { results, raw } = filesOf(tree);
  const cited = citations(tree);
  const known = new Map(rowsOf(before, COLUMNS).map(({ file, cells }) => [file, cells]));
  const rows = results.map((file) => {
    const cells = known.get(file)?.slice(0, COLUMNS.length - 1) ?? proposed(file, tree.get(file));
    return [...cells, pagesCell(cited.get(file))];
  });
  const rawRows = raw.map((file) => [linkTo(file), inCode(tree.get(file))]);
  return withRows(withRows(before, COLUMNS, rows), RAW_COLUMNS, rawRows);
}

/** What is wrong with one row of a result, or nothing. */
function wrongWith({ file, cells }, tree, cited) {
  if (!tree.has(file)) return `names ${file}, which is not there: ${MEND}`;
  if (!cited.has(file)) return `no page cites ${file}: cite it, or leave it out`;
  if (cells.length !== COLUMNS.length || cells.some((cell) => cell === '' || cell === UNKNOWN)) {
    return `${file}: a cell that is empty or ${UNKNOWN}: \`bench/index\`, then write what it is`;
  }
  const pages = pagesCell(cited.get(file));
  return cells.at(-1) === pages ? null : `${file} is cited by ${pages}: ${MEND}`;
}

/** What is wrong with bench/results: `{path, line, message}`. */
export function* resultFindings(tree) {
  const { results, raw, plain } = filesOf(tree);
  for (const path of plain) {
    yield { path, line: 1, message: path.endsWith('.html')
      ? 'leave it out: the command of the run draws it again'
      : 'raw data is kept compressed: `bench/index` does it' };
  }
  const index = tree.get(INDEX) ?? '';
  const tables = [[results, rowsOf(index, COLUMNS)], [raw, rowsOf(index, RAW_COLUMNS)]];
  for (const [files, rows] of tables) {
    const listed = new Set(rows.map(({ file }) => file));
    for (const path of files.filter((file) => !listed.has(file))) {
      yield { path, line: 1, message: `not in ${INDEX}: ${MEND}` };
    }
  }
  for (const path of raw.filter((file) => !ownersOf(file).some((owner) => tree.has(owner)))) {
    yield { path, line: 1, message: `raw data without ${ownersOf(path).join(' or ')}` };
  }
  const cited = citations(tree);
  for (const row of tables[0][1]) {
    const message = wrongWith(row, tree, cited);
    if (message !== null) yield { path: INDEX, line: row.line, message };
  }
  for (const { line: at, file, cells } of tables[1][1]) {
    if (cells[1] !== inCode(tree.get(file))) {
      const message = tree.has(file) ? `${file} has another SHA-256 than its row: was it changed?`
        : `names ${file}, which is not there: ${MEND}`;
      yield { path: INDEX, line: at, message };
    }
  }
}
