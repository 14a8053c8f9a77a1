// A planted violation of each house rule is found, and what looks like one is not.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { circlesOf } from './circles.mjs';
import { FOLDERS } from './parts.mjs';
import { findings, judge, RULES } from './rules.mjs';

const ERL = 'apps/halley/src/base/halley_x.erl';
const RUST = 'edge/halley-link/src/x.rs';
const ERL_HEAD = '%% Purpose.\n-module(halley_x).\n';
const RUST_HEAD = '//! Purpose.\n';

const rulesIn = (files) =>
  findings(new Map(Object.entries(files))).map(({ rule, line }) => `${rule}:${line}`);

const erlang = (code) => ({ [ERL]: `${ERL_HEAD}${code}\n` });
const rust = (code) => ({ [RUST]: `${RUST_HEAD}${code}\n` });
const edge = (files) => Object.fromEntries(Object.entries(files).map(([name, code]) =>
  [`edge/halley-edge/src/${name}.rs`, `${RUST_HEAD}${code}\n`]));
const door = (folder, module) => ({
  'apps/halley/src/README.md': `## \`${folder}/\`\n\n| \`${module}\` | what |\n`,
});
const many = (count, text) => `${text}\n`.repeat(count);

const planted = {
  'a line of 101 columns': [erlang(`%% ${'x'.repeat(98)}`), 'layout:3'],
  'a space at the end': [rust('fn a() {} '), 'layout:2'],
  'a tab': [erlang('\tok.'), 'layout:3'],
  'no newline at the end': [{ [RUST]: '//! Purpose.' }, 'layout:1'],
  'a file of 501 lines': [rust(many(500, '// x').trimEnd()), 'file-lines:501'],
  'an Erlang function of 61 lines':
    [erlang(`f(X) ->\n${many(59, '    X,')}    X.`), 'function-lines:3'],
  'a Rust function of 61 lines': [rust(`fn f() {\n${many(59, '    x();')}}`), 'function-lines:2'],
  '16 exports': [erlang(`-export([${Array.from({ length: 16 }, (_, n) => `f${n}/0`)}]).`),
    'exports:1'],
  'binary_to_term': [erlang('f(X) -> binary_to_term(X).'), 'erlang-calls:3'],
  'erlang:binary_to_term': [erlang('f(X) -> erlang:binary_to_term(g(X)).'), 'erlang-calls:3'],
  'list_to_atom': [erlang('f(X) -> list_to_atom(X).'), 'erlang-calls:3'],
  'binary_to_atom': [erlang('f(X) -> binary_to_atom(X, utf8).'), 'erlang-calls:3'],
  unwrap: [rust('fn f() { x().unwrap(); }'), 'rust-calls:2'],
  expect: [rust('fn f() { x()\n    .expect("why"); }'), 'rust-calls:3'],
  panic: [rust('fn f() { panic!("why"); }'), 'rust-calls:2'],
  'unwrap after the tests': [rust('#[cfg(test)]\nmod tests { }\nfn f() { x().unwrap(); }'),
    'rust-calls:4'],
  unsafe: [rust('fn f() { unsafe { x() } }'), 'rust-unsafe:2'],
  'the emulator\'s idea of the wall\'s clock':
    [erlang('f() -> erlang:system_time(second).'), 'clocks:3'],
  'the machine\'s clock': [erlang('f() -> os : timestamp().'), 'clocks:3'],
  'the day of today': [erlang('f() -> calendar:universal_time().'), 'clocks:3'],
  'the machine\'s clock in Rust': [rust('fn f() -> SystemTime { now() }'), 'clocks:2'],
  'its number in Rust': [rust('const C: i32 = libc::CLOCK_REALTIME_COARSE;'), 'clocks:2'],
  'a mark': [erlang(`%% ${'TO' + 'DO'}: later`), 'marks:3'],
  'halley calls halley_api': [erlang('f() -> halley_api:handle().'), 'arrows:3'],
  'halley calls halley_postgres': [erlang('f() -> halley_postgres_sql:copy().'), 'arrows:3'],
  'halley_remote calls halley':
    [{ 'apps/halley_remote/src/a.erl': '%% P.\nf() -> halley:g(), halley_remote_a:g().\n' },
      'arrows:2'],
  'halley_postgres calls halley_api':
    [{ 'apps/halley_postgres/src/a.erl': '%% P.\nf() -> fun halley_api:g/0.\n' }, 'arrows:2'],
  'halley calls halley_edge': [erlang('f() -> halley_edge_link:send().'), 'arrows:3'],
  'halley_api calls halley_edge':
    [{ 'apps/halley_api/src/a.erl': '%% P.\nf() -> halley_edge_x:g().\n' }, 'arrows:2'],
  'halley_edge calls halley_api':
    [{ 'apps/halley_edge/src/a.erl': '%% P.\nf() -> fun halley_api:g/0.\n' }, 'arrows:2'],
  'epgsql calls halley':
    [{ 'apps/epgsql/src/a.erl': '%% P.\nf() -> halley:g().\n' }, 'arrows:2'],
  'ketama calls halley':
    [{ 'apps/ketama/src/a.erl': '%% P.\nf() -> halley:g().\n' }, 'arrows:2'],
  'teleport calls halley':
    [{ 'apps/teleport/src/a.erl': '%% P.\nf() -> halley:g().\n' }, 'arrows:2'],
  'teleport calls another library':
    [{ 'apps/teleport/src/a.erl': '%% P.\nf() -> ketama:new([], #{}).\n' }, 'arrows:2'],
  'two modules that call each other':
    [{ 'apps/halley_edge/src/a.erl': '%% P.\n-export([f/0]).\nf() ->\n    b:g().\n',
      'apps/halley_edge/src/b.erl': '%% P.\n-export([g/0]).\ng() -> fun a:f/0.\n' },
    'circles:4'],
  'a call back in a macro':
    [{ 'apps/halley_edge/src/a.erl': '%% P.\nf() -> b:f().\n',
      'apps/halley_edge/src/b.erl': '%% P.\n-define(X, a:f()).\nf() -> ?X.\n' },
    'circles:2'],
  'a circle of three over folders, with a way into it':
    [{ 'apps/halley_edge/src/o.erl': '%% P.\nf() -> c:f().\n',
      'apps/halley_edge/src/a/a.erl': '%% P.\n\nf() -> b:f().\n',
      'apps/halley_edge/src/a/b.erl': '%% P.\nf() -> c:f().\n',
      'apps/halley_edge/src/b/c.erl': '%% P.\nf() -> a:f().\n' },
    'circles:3'],
  'a call up into another folder':
    [{ [ERL]: `${ERL_HEAD}f() ->\n    halley_y:g().\n`, ...door('history', 'halley_y'),
      'apps/halley/src/history/halley_y.erl': '%% P.\ng() -> ok.\n' }, 'folders:4'],
  'a call across to another folder':
    [{ 'apps/halley/src/keys/a.erl': '%% P.\nf() -> fun halley_y:g/0.\n',
      'apps/halley/src/follows/halley_y.erl': '%% P.\ng() -> ok.\n',
      ...door('follows', 'halley_y') }, 'folders:2'],
  'a type from a folder above':
    [{ [ERL]: `${ERL_HEAD}-spec f() -> halley_y:t().\n`,
      'apps/halley/src/history/halley_y.erl': '%% P.\ng() -> ok.\n',
      ...door('history', 'halley_y') }, 'folders:3'],
  'a call past the doors of a folder':
    [{ 'apps/halley/src/keys/a.erl': '%% P.\nf() -> halley_y:g().\n',
      'apps/halley/src/online/halley_y.erl': '%% P.\ng() -> ok.\n' }, 'doors:2'],
  'a type past the doors, from another application':
    [{ 'apps/halley_edge/src/a.erl': '%% P.\n-spec f() -> halley_y:t().\n',
      'apps/halley/src/online/halley_y.erl': '%% P.\ng() -> ok.\n' }, 'doors:2'],
  'a door of another folder':
    [{ 'apps/halley/src/keys/a.erl': '%% P.\nf() -> halley_y:g().\n',
      'apps/halley/src/online/halley_y.erl': '%% P.\ng() -> ok.\n', ...door('base', 'halley_y') },
    'doors:2'],
  'a door that is asked inside its folder alone':
    [{ [ERL]: `${ERL_HEAD}f() -> halley_y:g().\n`,
      'apps/halley/src/base/halley_y.erl': '%% P.\ng() -> ok.\n', ...door('base', 'halley_y') },
    'doors:3'],
  'a module in no folder': [{ 'apps/halley/src/a.erl': '%% P.\n' }, 'folders:1'],
  'a module in a folder that is none of the parts':
    [{ 'apps/halley/src/base/more/a.erl': '%% P.\n' }, 'folders:1'],
  'halley-wire knows mio': [{ 'edge/halley-wire/Cargo.toml': 'mio = "1"\n' }, 'arrows:1'],
  'halley-sys knows halley-edge':
    [{ 'edge/halley-sys/Cargo.toml': 'halley-edge = "1"\n' }, 'arrows:1'],
  'halley-report knows halley-wire':
    [{ 'edge/halley-report/Cargo.toml': 'halley-wire.workspace = true\n' }, 'arrows:1'],
  'a part of the edge that knows one above it':
    [edge({ 'conns/a': 'use crate::sessions::b::B;', 'sessions/b': 'pub struct B;' }),
      'edge-parts:2'],
  'a part of the edge that knows its neighbour, among others':
    [edge({ 'groups/mod': 'use crate::{\n    outbox::Piece, link::Link,\n};', 'link/mod': '',
      outbox: '' }), 'edge-parts:2'],
  'a new part of the edge': [edge({ x: 'fn f() {}' }), 'edge-parts:1'],
  'a folder in a part of the edge that knows the files above it':
    [edge({ 'sessions/poll/mod': 'use crate::sessions::{base, polls::f};', 'sessions/polls': '',
      'sessions/base/mod': '' }), 'edge-parts:2'],
  'a folder in a part of the edge that knows its neighbour':
    [edge({ 'sessions/poll/a': 'use crate::sessions::replay::R;', 'sessions/replay/mod': '' }),
      'edge-parts:2'],
  'a folder in a part of the edge that knows one above it':
    [edge({ 'sessions/delivery/a': 'use crate::sessions::ws::W;', 'sessions/ws/mod': '' }),
      'edge-parts:2'],
  'a new folder in a part of the edge': [edge({ 'sessions/x/mod': '' }), 'edge-parts:1'],
  'four files of the edge in a circle':
    [edge({ 'conns/a': 'use crate::conns::b::B;', 'conns/b': 'use crate::conns::{c::C, d};',
      'conns/c': 'use crate::conns::d::f;', 'conns/d': 'fn f() { crate::conns::a::g() }' }),
    'edge-parts:1'],
  'an Erlang module without a header': [{ [ERL]: '-module(halley_x).\n' }, 'headers:1'],
  'a Rust file without a header': [{ [RUST]: 'fn f() {}\n' }, 'headers:1'],
  'a TypeScript module without a header':
    [{ 'clients/js/src/x.ts': 'export const x = 1;\n' }, 'headers:1'],
  'a tab in TypeScript': [{ 'clients/js/src/x.ts': '// Purpose.\n\tx();\n' }, 'layout:2'],
  'a script without a header': [{ 'tools/x.sh': '#!/bin/sh\nls\n' }, 'headers:1'],
  'a link that leads nowhere': [{ 'docs/a.md': 'see [b](../b.md)\n' }, 'links:1'],
  'a frame without a vector':
    [{ 'protocol/link.md': '| 0x01 | PING | both | x |\n' }, 'vectors:1'],
  'a picture that no page shows':
    [{ 'docs/images/a.png': '', 'docs/images/b.png': '', 'docs/a.md': '![A](images/a.png)\n' },
      'pictures:1'],
  'a link to a result that is gone':
    [{ 'docs/a.md': '[x](../bench/results/x.md)\n' }, 'links:1'],
  'a result that is not in the index':
    [{ 'docs/a.md': '[x](../bench/results/x.md)\n', 'bench/results/x.md': '# x\n' }, 'results:1'],
};
for (const [what, [files, expected]] of Object.entries(planted)) {
  test(`found: ${what}`, () => assert.deepEqual(rulesIn(files), [expected]));
}

const innocent = {
  'a line of 100 columns': erlang(`%% ${'x'.repeat(97)}`),
  'words in comments': erlang('%% never list_to_atom(X), never halley_api:call()\nf() -> ok.'),
  'words in strings': erlang('f() -> "list_to_atom(X) % binary_to_term(X)".'),
  'a quote as a character': erlang('f() -> [$", $\\", $%], g().'),
  'binary_to_term with safe': erlang('f(X) -> binary_to_term(X, [safe]).'),
  'an application asked by its name': erlang('f() -> application:get_env(halley_edge, handler).'),
  'modules that know types of each other': {
    'apps/halley_edge/src/a.erl': '%% P.\n-spec f() -> b:t().\nf() -> b:f().\n',
    'apps/halley_edge/src/b.erl':
      '%% P.\n-record(s, {x = 1 :: a:t(),  %% a.\n    y :: a:t()}).\nf() -> a.\n',
  },
  'a fun that is handed down': {
    'apps/halley_edge/src/a.erl': '%% P.\nf() -> b:f(fun c:f/0).\n',
    'apps/halley_edge/src/b.erl': '%% P.\nf(F) -> F(), c:g().\n',
    'apps/halley_edge/src/c.erl': '%% P.\n%% b:f(x)\nf() -> "a:f()", lists:f().\n',
  },
  'calls down to a door, within a folder and of a library': {
    [ERL]: `${ERL_HEAD}f() -> lists:g(halley_z:f()).\n`,
    'apps/halley/src/base/halley_z.erl': '%% P.\nf() -> ok.\n',
    'apps/halley/src/start/halley_y.erl': '%% P.\nf() -> halley_x:f().\n',
    ...door('base', 'halley_x'),
  },
  'clauses with ends inside': erlang(`f(1) ->\n${many(30, '    a,')}    b;\nf(2) ->\n    c.`),
  'a long file of tests for the most part':
    rust(`${many(300, '// x')}\n#[cfg(test)]\nmod tests {\n${many(300, '    // x')}\n}`),
  'a clock that only goes on': erlang('f() -> erlang:monotonic_time(second).'),
  'the modules that ask the machine': {
    'apps/halley/src/base/halley_clock.erl': '%% P.\nf() -> os:system_time(second).\n',
    'edge/halley-edge/src/clock.rs': '//! P.\nfn f() { SystemTime::now() }\n',
  },
  'the machine\'s clock in tests': rust('#[cfg(test)]\nmod tests {\n    use a::SystemTime;\n}'),
  'unwrap in tests': rust('#[cfg(test)]\nmod tests {\n    fn f() { x().unwrap(); }\n}'),
  'unwrap_or': rust('fn f() { x().unwrap_or(1); y().expected(); }'),
  'words in Rust strings': rust('fn f() { g("unsafe { x.unwrap() }", \'"\', r#"unsafe"#); }'),
  'a lifetime': rust("fn f<'a>(x: &'a str) -> &'a str { x }"),
  'unsafe_code as a lint': rust('#![forbid(unsafe_code)]'),
  'unsafe in halley-sys': { 'edge/halley-sys/src/x.rs': '//! P.\nfn f() { unsafe { x() } }\n' },
  'a file declared as tests': rust('#[cfg(test)]\nmod tests;\nfn f() {}'),
  'parts of the edge that know those below': edge({
    'sessions/a': 'use crate::conns::b::B;  // crate::worker::W',
    'conns/b': 'use crate::conns::c;\n#[cfg(test)]\nmod tests {\n    use crate::sessions::a;\n}',
    'conns/c': 'use crate::conns::d;', 'conns/d': 'use crate::conns::b;',
    'conns/tests': 'use crate::worker::W;',
  }),
  'folders in a part of the edge that know those below': edge({
    'sessions/a': 'use crate::sessions::{ws::W, base::b::B};', 'sessions/mod': '',
    'sessions/ws/mod': 'use crate::sessions::subscriptions::S;\nuse crate::conns::d;',
    'sessions/subscriptions/mod': 'use crate::sessions::subscriptions::view;',
    'sessions/subscriptions/view': 'use crate::sessions::base::b;', 'sessions/base/b': '',
    'conns/tls/a': 'use crate::conns::d;', 'conns/d': '',
  }),
  'a link that leads somewhere': { 'docs/a.md': 'see [b](b.md#x)\n', 'docs/b.md': '# x\n' },
  'a link out, and one in code': { 'docs/a.md': '[x](https://x.example) `[y](z.md)`\n' },
  'a frame with a vector':
    { 'protocol/link.md': '| 0x01 | PING | b | x |\n', 'protocol/vectors/ping.json': '{}' },
};
for (const [what, files] of Object.entries(innocent)) {
  test(`not found: ${what}`, () => assert.deepEqual(rulesIn(files), []));
}

test('a file of 401 lines is a warning', () => {
  const [found] = findings(new Map(Object.entries(rust(many(400, '// x').trimEnd()))));
  assert.equal(found.rule, 'file-lines');
  assert.equal(found.isWarning, true);
});

test('every rule has a planted violation', () => {
  const found = new Set(Object.values(planted).map(([, expected]) => expected.split(':')[0]));
  assert.equal(found.size, RULES.length);
});

test('a call against the order of the folders names both modules and the arrow', () => {
  const [files] = planted['a call up into another folder'];
  const [{ path, message }] = findings(new Map(Object.entries(files)));
  assert.equal(path, ERL);
  assert.equal(message, 'halley_x must not name halley_y: base -> history');
});

test('the folders are in no circle', () => {
  for (const mayCall of Object.values(FOLDERS)) {
    const graph = Object.entries(mayCall)
      .map(([folder, others]) => [folder, others.map((module) => ({ module }))]);
    assert.deepEqual(circlesOf(new Map(graph)), []);
  }
});

test('an exception with a reason covers its rule and file alone', () => {
  const found = findings(new Map(Object.entries(rust('fn f() { unsafe { x().unwrap() } }'))));
  const bad = judge(found, { [`rust-unsafe ${RUST}`]: 'a reason that a stranger would accept' });
  assert.deepEqual(bad.map(({ rule }) => rule), ['rust-calls']);
});

test('an exception without need or reason is a finding', () => {
  assert.equal(judge([], { 'layout x': 'a reason that a stranger would accept' }).length, 1);
  const found = findings(new Map(Object.entries(rust('fn f() { unsafe { x() } }'))));
  assert.equal(judge(found, { [`rust-unsafe ${RUST}`]: 'because' }).length, 1);
});
