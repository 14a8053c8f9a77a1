// The functions of docs/guides/hooks.md that tell whether a hook is Halley's, run as they are
// printed there: they take what is signed, and refuse any other header without an exception.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { createHmac } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { test } from '../lib/halley.mjs';

const path = (name) => fileURLToPath(new URL(`../../${name}`, import.meta.url));
const PYTHON = process.env.HALLEY_PYTHON ?? path('.tools/python/bin/python');
const GUIDE = readFileSync(path('docs/guides/hooks.md'), 'utf8');
const SECRET = 'a secret';
const BODY = Buffer.from('{"id":"1"}\n');

const block = (language) => GUIDE.split('```').find((part) => part.startsWith(`${language}\n`))
  .slice(language.length + 1);

function headers() {
  const now = Math.floor(Date.now() / 1000);
  const sign = (time) => createHmac('sha256', SECRET)
    .update(`v1:${time}:`).update(BODY).digest('hex');
  const good = sign(now);
  const letters = 'é'.repeat(64);
  return [
    [true, `t=${now},v1=${good}`],
    [true, `t=${now},v1=${'0'.repeat(64)},v1=${good}`],
    [true, `t=${now},v1=${letters},v1=${good}`],
    [false, ''],
    [false, 't='],
    [false, `v1=${good}`],
    [false, `t=${now}`],
    [false, `t=${now},v1=`],
    [false, `t=${now},v1=${good.slice(1)}`],
    [false, `t=${now},v1=${letters}`],
    [false, `t=${now},v1=${'\u{1f30d}'.repeat(32)}`],
    [false, `t=${now},v1=${good.replace(/.$/, '\u00e9')}`],
    [false, `t=${now - 301},v1=${sign(now - 301)}`],
    [false, `t=${now + 301},v1=${sign(now + 301)}`],
    [false, `t=\u0661\u0662,v1=${good}`],
    [false, `t=${'9'.repeat(5_000)},v1=${good}`],
  ];
}

test('Node: what is signed is taken, all else refused', async () => {
  const source = Buffer.from(block('js')).toString('base64');
  const { isFromHalley } = await import(`data:text/javascript;base64,${source}`);
  for (const [wanted, header] of headers()) {
    assert.equal(isFromHalley(header, BODY, SECRET), wanted, header.slice(0, 200));
  }
});

test('Python: what is signed is taken, all else refused', () => {
  const cases = headers();
  const program = `${block('python')}
import json, sys
told = json.load(sys.stdin)
print(json.dumps([is_from_halley(header, told["body"].encode(), told["secret"])
                  for header in told["headers"]]))`;
  const input = JSON.stringify({ body: BODY.toString(), secret: SECRET,
    headers: cases.map(([, header]) => header) });
  const answers = JSON.parse(execFileSync(PYTHON, ['-c', program], { input, encoding: 'utf8' }));
  assert.deepEqual(answers, cases.map(([wanted]) => wanted));
});
