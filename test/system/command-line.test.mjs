// `halley`, the command line over HTTP, against a running server: each command does what it says,
// its result alone is on stdout, and its exit status tells a script what happened
// (docs/reference/command-line.md).

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { follow, sessionsOf } from '../lib/client.mjs';
import { begin, json, run, withHalley } from '../lib/command-line.mjs';
import { freePort, LAUNCHER, test } from '../lib/halley.mjs';
import { until } from '../lib/wait.mjs';

const RELEASE = `${process.env.REBAR_BASE_DIR ?? '_build'}/default/rel/halley`;

test('status, follows and lists, in words and as JSON', withHalley(async (halley) => {
  const [status] = await json(halley, 'status');
  assert.equal(status.state, 'ready');
  assert.equal(typeof status.now.sessions, 'number');
  assert.match((await run(halley, 'status')).out, /^node .*\nstate +ready\n/);

  assert.deepEqual(await json(halley, 'follow bob ann room/7 ..'),
    [{ added: 3, already: 0, errors: [] }]);
  assert.equal((await run(halley, 'follow eve ann')).out, '1 new, 0 there already\n');
  assert.deepEqual(await json(halley, 'following bob'),
    [{ subject: 'ann' }, { subject: 'room/7' }, { subject: '..' }]);
  assert.equal((await run(halley, 'followers ann')).out, 'bob\neve\n');
  assert.equal((await run(halley, 'followers .. --limit 1')).out, 'bob\n');
  assert.equal((await run(halley, 'followers ann --limit 1')).out, 'bob\n');
  assert.equal((await run(halley, 'followers ann --after bob')).out, 'eve\n');
  assert.equal((await run(halley, 'unfollow bob .. nobody')).out, '1 ended, 1 not there\n');
  // More than a page.
  await follow(halley, ...Array.from({ length: 1_500 }, (_, n) => [`fan-${n}`, 'star']));
  assert.equal((await json(halley, 'followers star')).length, 1_500);
  assert.equal((await json(halley, 'followers star --limit 1001')).length, 1_001);

  const refused = await run(halley, ['follow', 'bob', 'joe', '']);
  assert.equal(refused.code, 1);
  assert.equal(refused.out, '1 new, 0 there already\n');
  assert.match(refused.err, /^halley: "": bad subject: .*\nhalley: 1 of 2 were refused\n$/);
}));

test('publish and listen: events are heard as they were written', withHalley(async (halley) => {
  await follow(halley, ['bob', 'ann']);
  const listening = begin(halley, ['listen', '--user', 'bob', '--count', '4', '--json']);
  await until('bob listens', async () => await sessionsOf(halley, 'bob') === 1);
  const data = '{"n":1.50, "big":12345678901234567890123}';
  const [answer] = await json(halley, ['publish', 'ann', data, '--id', 'first']);
  assert.deepEqual(answer, { id: 'first', sessions: 1 });
  assert.match((await run(halley, ['publish', '--to', 'bob', '--text', 'psst'])).out,
    /^cli-[0-9a-f]{24} sent to 1 sessions\n$/);
  await run(halley, ['publish', 'ann', '-', '--also', 'room/7'], { input: '[1,\n2]' });
  assert.deepEqual(await json(halley, 'publish ann 1 --keep --ack memory --id last'),
    [{ id: 'last', sessions: 1 }]);
  const heard = await listening.ended;
  assert.equal(heard.code, 0, JSON.stringify(heard));
  const lines = heard.out.split('\n').filter(Boolean);
  assert.ok(lines[0].includes('"data":{"n":1.50, "big":12345678901234567890123}'), lines[0]);
  const events = lines.map((text) => JSON.parse(text));
  assert.deepEqual(events.map((event) => event.data).slice(1), ['psst', [1, 2], 1]);
  assert.deepEqual(events[2].subjects, ['ann', 'room/7']);
  assert.ok(!lines.join('').includes('cursor'));

  const past = await json(halley, 'events ann');
  assert.deepEqual(past[0].kept.data, 1);
  assert.deepEqual(past.slice(1).map((event) => event.id).at(-1), 'first');
  assert.equal((await json(halley, 'events ann --limit 2')).length, 3);

  const wrong = await run(halley, 'publish ann hello');
  assert.equal(wrong.code, 2);
  assert.match(wrong.err, /isn't JSON: hello; --text publishes it as text/);
}));

test('publish from a pipe: each line has its answer, in its order', withHalley(async (halley) => {
  const input = ['{"subject":"s","data":1}', '', 'no', '{"subject":"s","data":3,"id":"mine"}',
    '{"subjec":"s"}', '{"subject":"s","data":4}'].join('\n');
  const results = await json(halley, 'publish', { input, code: 1 });
  assert.deepEqual(results.map((result) => [result.line, result.error?.code]).sort(), [
    [1, undefined], [3, 'bad_json'], [4, undefined], [5, 'bad_event'], [6, undefined]]);
  assert.equal(results.find((result) => result.line === 4).id, 'mine');
  const many = Array.from({ length: 25_000 }, (_, n) => `{"subject":"m","data":${n}}\n`).join('');
  const told = await run(halley, 'publish', { input: many });
  assert.deepEqual(told, { code: 0, out: '25,000 events published\n', err: '' });
  const newest = await json(halley, 'events m --limit 3');
  assert.deepEqual(newest.map((event) => event.data), [24_999, 24_998, 24_997]);

  // A line of other bytes than UTF-8 is refused, not changed.
  const latin = '{"subject":"l","data":"caf\xe9"}\n{"subject":"l","data":1}\n';
  const bytes = { input: Buffer.from(latin, 'latin1'), code: 1 };
  const [other, good] = await json(halley, 'publish', bytes);
  assert.deepEqual([other.line, other.error.message, good.line], [1, 'it isn\'t UTF-8', 2]);

  // A reader of the results that goes away is a failure: later lines aren't published.
  const left = begin(halley, ['publish', '--json']);
  left.child.stdout.destroy();
  left.child.stdin.end('{"subject":"s","data":1}\n');
  const failed = await left.ended;
  assert.equal(failed.code, 7);
  assert.match(failed.err, /"status":7/);

  // A line that comes alone is answered at once, while the pipe stays open.
  const slow = begin(halley, ['publish', '--json']);
  for (const n of [1, 2]) {
    slow.child.stdin.write('{"subject":"s","data":1}\n');
    await until(`line ${n} is answered`, () => slow.output().split('\n').length === n + 1);
  }
  slow.child.stdin.end();
  assert.equal((await slow.ended).code, 0);
}));

test('a pipe outlives the brain: every event is there once', withHalley(async (halley) => {
  const piped = begin(halley, ['publish', '--json', '--patience', '60']);
  piped.child.stdin.write('{"subject":"s","data":0}\n');
  await until('the first is answered', () => piped.output().includes('"line":1'));
  process.kill(halley.brainPid(), 'SIGKILL');
  for (let n = 1; n <= 100; n += 1) piped.child.stdin.write(`{"subject":"s","data":${n}}\n`);
  piped.child.stdin.end();
  const told = await piped.ended;
  assert.equal(told.code, 0, JSON.stringify(told).slice(0, 2000));
  assert.equal(told.out.split('\n').filter(Boolean).length, 101);
  const past = await json(halley, 'events s --limit 1000');
  const numbers = Array.from({ length: 101 }, (_, n) => n);
  assert.deepEqual(past.map((event) => event.data).reverse(), numbers);
}));

test('listen goes on where the run before ended, and after the brain was killed',
  withHalley(async (halley) => {
    await follow(halley, ['bob', 'ann']);
    const file = join(halley.folder, 'bob.cursor');
    const words = ['listen', '--user', 'bob', '--cursor-file', file, '--json', '--count'];
    const first = begin(halley, [...words, '1']);
    await until('bob listens', async () => await sessionsOf(halley, 'bob') === 1);
    await run(halley, 'publish ann 1');
    assert.equal((await first.ended).code, 0);
    await run(halley, 'publish ann 2');
    const second = begin(halley, [...words, '2']);
    await until('2 was heard', () => second.output().includes('"data":2'));
    process.kill(halley.brainPid(), 'SIGKILL');
    await run(halley, 'publish ann 3 --patience 60');
    const told = await second.ended;
    assert.deepEqual(told.out.split('\n').filter(Boolean).map((line) => JSON.parse(line).data),
      [2, 3]);
    writeFileSync(file, 'something else');
    assert.equal((await run(halley, [...words, '1'])).code, 2);
  }));

test('trace, sessions, users and close', withHalley(async (halley) => {
  await follow(halley, ['bob', 'ann']);
  const listening = begin(halley, ['listen', 'room/7', '--user', 'bob', '--json']);
  await until('bob listens', async () => await sessionsOf(halley, 'bob') === 1);
  await run(halley, 'publish ann 1 --id e/1');
  await until('it was heard', () => listening.output().includes('e/1'));
  const [trace] = await json(halley, 'trace e/1 bob');
  assert.equal(trace.answer, 'yes');
  assert.match((await run(halley, 'trace e/1 bob')).out, /^Yes: .*\nevent +e\/1 at .*\n/);
  assert.equal((await run(halley, 'trace e/2 bob')).code, 1);

  const [session] = await json(halley, 'sessions bob');
  assert.equal(session.transport, 'ndjson');
  assert.match((await run(halley, 'sessions bob')).out, /^USER +WORKER .*\nbob +[01] /);
  assert.deepEqual(await json(halley, 'sessions --behind'), []);
  assert.deepEqual((await json(halley, 'users bob ann')).map((user) => [user.user, user.online]),
    [['bob', true], ['ann', false]]);
  assert.deepEqual(await json(halley, 'users --in ann'), [{ user: 'bob' }]);
  assert.deepEqual(await json(halley, 'close bob --subscription room/7'), [{ ended: 1 }]);
  assert.deepEqual(await json(halley, 'close bob'), [{ closed: 1 }]);
  listening.child.kill();
  await listening.ended;
  const ended = await json(halley, 'sessions --ended close_sessions');
  assert.equal(ended[0].user, 'bob');
  assert.equal((await run(halley, 'sessions --ended boredom')).code, 1);
  assert.equal((await run(halley, 'sessions')).code, 2);
}));

test('exit statuses: no server, no key, the scope, a file', withHalley(async (halley) => {
  const nowhere = { env: { HALLEY_URL: `http://127.0.0.1:${await freePort()}` } };
  const away = await run(halley, 'status', nowhere);
  assert.deepEqual([away.code, away.out], [3, '']);
  assert.match(away.err, /^halley: http:\/\/127\.0\.0\.1:\d+ doesn't answer: /);
  assert.equal((await run(halley, 'status --url ftp://x')).code, 2);
  const usage = await run(halley, 'status --timeout soon --json');
  assert.deepEqual([usage.code, JSON.parse(usage.err).error.status], [2, 2]);
  assert.equal((await run(halley, 'status', { env: { HALLEY_TIMEOUT: '' } })).code, 0);
  assert.equal((await run(halley, 'status --config /nowhere')).code, 7);
  writeFileSync(join(halley.folder, 'bad.toml'), 'url = "http://h"\nkeyy = "x"\n');
  const misspelt = await run(halley, 'status --config bad.toml');
  assert.equal(misspelt.code, 2);
  assert.match(misspelt.err, /bad\.toml, line 2: unknown field `keyy`/);

  const created = await halley.command('key', 'create', 'web', '--scope', 'read');
  const key = created.stdout.trim();
  await until('the key is required', async () => (await run(halley, 'status')).code === 5);
  assert.equal((await run(halley, 'status', { env: { HALLEY_KEY: key } })).code, 0);
  const denied = await run(halley, 'publish ann 1', { env: { HALLEY_KEY: key } });
  assert.equal(denied.code, 5);
  assert.match(denied.err, /publish.*\(403 scope_missing\)\n$/);
  const script = await run(halley, 'publish ann 1 --json', { env: { HALLEY_KEY: key } });
  const { status, code } = JSON.parse(script.err).error;
  assert.deepEqual([script.code, script.out, status, code], [5, '', 5, 'scope_missing']);
  writeFileSync(join(halley.folder, 'good.toml'), `url = "${halley.apiUrl}"\nkey = "${key}"\n`);
  assert.equal((await run(halley, 'status --config good.toml')).code, 0);
}));

test('completion for three shells', withHalley(async (halley) => {
  for (const [shell, start] of [['bash', '_halley()'], ['zsh', '#compdef halley'],
    ['fish', '# Print an optspec']]) {
    const told = await run(halley, ['completion', shell]);
    assert.equal(told.code, 0);
    assert.ok(told.out.startsWith(start), told.out.slice(0, 100));
    assert.match(told.out, /unfollow/);
  }
  assert.equal((await run(halley, 'completion csh')).code, 2);
}));

test('token: what is made here is accepted there, and explained', async () => {
  const secret = join(mkdtempSync(join(tmpdir(), 'halley-token-')), 'secret');
  writeFileSync(secret, `${'0123456789abcdef'.repeat(2)}\n`);
  await withHalley(async (halley) => {
    const make = ['token', 'make', 'bob', '--secret-file', secret];
    const [{ token, claims }] = await json(halley, [...make, '--subscribe', 'live/*']);
    assert.equal(claims.sub, 'bob');
    assert.deepEqual(claims.halley, { subscribe: ['live/*'] });
    const listening = begin(halley, ['listen', 'live/score', '--count', '1', '--json'],
      { env: { HALLEY_TOKEN: token } });
    await until('bob listens', async () => await sessionsOf(halley, 'bob') === 1);
    await run(halley, 'publish live/score [1,0]');
    assert.deepEqual(JSON.parse((await listening.ended).out).data, [1, 0]);
    const denied = await run(halley, 'listen room/7', { env: { HALLEY_TOKEN: token } });
    assert.equal(denied.code, 5);
    assert.match(denied.err, /\(403 right_missing\)/);
    assert.equal((await run(halley, 'listen')).code, 5);

    const explain = (text, ...words) => json(halley, ['token', 'explain', text, ...words]);
    for (const words of [['--ask'], ['--secret-file', secret]]) {
      assert.equal((await explain(token, ...words))[0].verdict.good, true);
    }
    assert.equal((await explain(token))[0].verdict.good, null);
    // Changed on its way: the server, the secret and the times give their verdicts.
    const [head, , signature] = token.split('.');
    const old = Buffer.from('{"sub":"bob","exp":1000}').toString('base64url');
    const changed = `${head}.${old}.${signature}`;
    for (const [words, code] of [[['--ask'], 'token_signature'],
      [['--secret-file', secret], 'token_signature'], [[], 'token_expired']]) {
      const line = ['token', 'explain', changed, ...words];
      const [{ verdict }] = await json(halley, line, { code: 1 });
      assert.deepEqual([verdict.good, verdict.code], [false, code]);
    }
    const piped = await run(halley, 'token explain -', { input: `Bearer ${token}\n` });
    assert.match(piped.out, /^signed by +HS256, key -\nuser +bob\n.*\nexpires +20/);
    assert.equal((await run(halley, 'token explain x.y.z')).code, 1);
    assert.equal((await run(halley, 'token make bob')).code, 2);
  }, { settings: { HALLEY_AUTH_MODE: 'jwt', HALLEY_AUTH_HMAC_SECRET_FILE: secret } })();
});

test('top: a line for each sample, with the busiest subjects', withHalley(async (halley) => {
  await follow(halley, ['bob', 'ann']);
  const top = begin(halley, ['top', '--count', '6', '--json', '--subjects', '3']);
  // The server counts only while it is asked.
  await until('top has begun', () => top.output() !== '');
  const input = Array.from({ length: 400 }, () => '{"subject":"ann","data":1}\n').join('');
  await run(halley, 'publish', { input });
  const samples = (await top.ended).out.split('\n').filter(Boolean).map((line) => JSON.parse(line));
  assert.equal(samples.length, 6);
  const times = samples.map((sample) => sample.now.at);
  assert.deepEqual(times, [...new Set(times)].sort((one, other) => one - other));
  assert.equal(samples.at(-1).now.events, 400);
  assert.ok(samples.some((sample) => sample.subjects[0]?.subject === 'ann'));
  assert.match((await run(halley, 'top --count 1')).out, /^ready  0 sessions, \d+ events\/s, /);
}));

test('doctor: what is wrong, and what to do', withHalley(async (halley) => {
  const found = await json(halley, 'doctor');
  const of = (check) => found.find((finding) => finding.check === check);
  for (const check of ['state', 'version', 'clock', 'edge', 'memory', 'key', 'history', 'disk']) {
    assert.equal(of(check)?.state, 'ok', JSON.stringify(found));
  }
  for (const finding of found) {
    assert.equal(finding.do === null, finding.state === 'ok', JSON.stringify(finding));
  }
  assert.ok(of('open files'), 'the server runs on this machine');
  assert.match((await run(halley, 'doctor')).out, /^ok +state +ready\nok +version +0\./);
  // Where no server answers, this machine may say why.
  const away = { env: { HALLEY_URL: `http://127.0.0.1:${await freePort()}` } };
  const told = await run(halley, 'doctor', away);
  assert.equal(told.code, 3);
  assert.match(told.out, /^ok +disk +/);
}));

test('alone on a laptop: commands of the server\'s machine are named', async () => {
  const program = join(dirname(LAUNCHER), RELEASE, 'bin', 'halley-cli');
  for (const words of [['key', 'create', 'web', '--scope', 'read'], ['hooks', 'check'],
    ['postgres', 'check'], ['backup', 'x'], ['restore', 'x'], ['config']]) {
    const told = await new Promise((resolve) => {
      execFile(program, words, (error, out, err) => resolve({ code: error?.code, out, err }));
    });
    assert.deepEqual([told.code, told.out], [6, ''], words[0]);
    assert.match(told.err, /server's machine|`\.\/halley /);
  }
});

test('the launcher hands on each command that works over HTTP', withHalley(async (halley) => {
  const address = new URL('../../docs/reference/command-line.md', import.meta.url);
  const page = readFileSync(address, 'utf8');
  const commands = [...page.matchAll(/^### halley (\S+)/gm)].map(([, name]) => name);
  const own = ['key', 'hooks', 'postgres', 'backup', 'restore', 'config'];
  for (const name of commands.filter((each) => !own.includes(each))) {
    const told = await run(halley, [name, '--help']);
    assert.equal(told.code, 0, name);
    assert.match(told.out, new RegExp(`^Usage: halley ${name}`, 'm'));
  }
}));
