// Each pattern of prose.mjs is found where readers meet it, and what isn't prose is left alone.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { areaOf, proseFindings } from './prose.mjs';

const found = (path, text) => [...proseFindings(new Map([[path, text]]))]
  .map(({ pattern, line }) => `${pattern}:${line}`);

const planted = {
  'headless:1': 'What is kept goes into the log.\n',
  'headless:2': '# A\nIt is so. Who is away gets it later.\n',
  'nobody:1': 'An event that nobody follows is kept.\n',
  'none:1': 'There is no session any more.\n',
  'beside:1': 'It is behind the first frame.\n',
  'told:1': 'The user is told the state.\n',
  'passive:1': 'It is known to all edges.\n',
};
for (const [expected, text] of Object.entries(planted)) {
  test(`found in a document: ${text.trim()}`, () =>
    assert.deepEqual(found('docs/a.md', text), [expected]));
}

test('found in the headers of modules, not below them', () => {
  assert.deepEqual(found('apps/a/src/a.erl', '%% Nobody asks.\n-module(a).\n%% Nobody.\n'),
    ['nobody:1']);
  assert.deepEqual(found('edge/a/src/a.rs', '//! Nobody asks.\nuse a;\n// Nobody.\n'),
    ['nobody:1']);
  assert.deepEqual(found('clients/a/a.py', '"""Nobody asks."""\nimport a\n# Nobody.\n'),
    ['nobody:1']);
});

const innocent = {
  'a question': '## What is lost when something fails?\n',
  'code': '`nobody` and\n```\nbehind nobody\n```\n',
  'a link': '[users](nobody.md)\n',
  'a link that is behind': 'It was behind when it drained; one that is *behind* is late.\n',
  'there is none': 'An id where there is none is refused.\n',
  'what stands behind a proxy': 'A server behind nginx, and one behind a reverse proxy.\n',
};
for (const [what, text] of Object.entries(innocent)) {
  test(`not found: ${what}`, () => assert.deepEqual(found('docs/a.md', text), []));
}

test('each file counts for one area', () => {
  const paths = ['docs/a.md', 'apps/a/src/a.erl', 'apps/a/test/a_tests.erl',
    'edge/a/src/a_tests.rs', 'clients/js/test/a.mjs', 'bench/lib/a.mjs'];
  assert.deepEqual(paths.map(areaOf),
    ['documents', 'headers', 'tests', 'tests', 'tests', 'tests']);
});
