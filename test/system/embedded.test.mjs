// docs/guides/embedding.md: a release with `apps/halley` alone, as examples/embedded is one.

import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before } from 'node:test';
import { fileURLToPath } from 'node:url';
import { freePort, kill, listeningPorts, test } from '../lib/halley.mjs';
import { Queue, until } from '../lib/wait.mjs';

const EXAMPLE = fileURLToPath(new URL('../../examples/embedded', import.meta.url));
const UNPACKED = fileURLToPath(new URL('../../.tools/rebar3/usr/bin', import.meta.url));
const START_MS_MAX = 60_000;

let folder;
let release;
before(() => {
  folder = mkdtempSync(join(tmpdir(), 'halley-chat-'));
  execFileSync('rebar3', ['release'], { cwd: EXAMPLE, stdio: ['ignore', 'ignore', 'inherit'],
    env: { ...process.env, PATH: `${process.env.PATH}:${UNPACKED}`,
      REBAR_BASE_DIR: join(folder, 'build') } });
  release = join(folder, 'build/default/rel/chat');
});
after(() => rmSync(folder, { recursive: true, force: true, maxRetries: 3 }));

class Chat {
  said = '';

  constructor(port, settings) {
    const config = join(folder, `sys-${port}.config`);
    const text = readFileSync(join(EXAMPLE, 'config/sys.config'), 'utf8');
    writeFileSync(config, text.replace('4000', `${port}`).replace(/#\{.*?\}/, settings));
    this.port = port;
    this.child = spawn(join(release, 'bin/chat'), ['foreground'], {
      cwd: folder, env: { ...process.env, RELX_CONFIG_PATH: config },
    });
    for (const output of [this.child.stdout, this.child.stderr]) {
      output.on('data', (data) => { this.said += data; });
    }
    this.ended = once(this.child, 'exit');
  }

  /** The emulator: the script has become it. */
  get pid() {
    return this.child.pid;
  }

  /** A client by this first line. */
  async enter(line) {
    const socket = await until('the chat answers', () => new Promise((resolve, reject) => {
      if (this.child.exitCode !== null) throw new Error(`it ended: ${this.said}`);
      const tried = connect({ port: this.port, host: '127.0.0.1' });
      tried.once('connect', () => resolve(tried));
      tried.once('error', () => resolve(undefined));
    }), START_MS_MAX);
    const lines = new Queue();
    let rest = '';
    socket.on('error', () => {});
    socket.on('data', (data) => {
      const parts = (rest + data).split('\n');
      rest = parts.pop();
      for (const part of parts) lines.push(part);
    });
    const say = (text) => socket.write(`${text}\n`);
    say(line);
    return { say, next: (what) => lines.next(what), lines, close: () => socket.destroy() };
  }

  async kill() {
    kill(this.pid, 'SIGKILL');
    await this.ended;
  }
}

const split = (line) => {
  const [, cursor, text] = /^(\S+) (.*)$/.exec(line);
  return { cursor, text };
};

test('the example: talk, who is here, kill -9, and back with a cursor to what was missed',
  async () => {
  const port = await freePort();
  const settings = `#{'data.dir' => "${join(folder, 'data')}"}`;
  let chat = new Chat(port, settings);
  try {
    const ann = await chat.enter('ann');
    ann.say('/who');
    assert.equal(await ann.next('who is here'), 'here: ann');
    const bob = await chat.enter('bob');
    bob.say('/who');
    assert.equal(await bob.next('who is here'), 'here: ann bob');
    ann.say('hello');
    const seen = split(await bob.next('a line'));
    assert.equal(seen.text, 'ann: hello');
    bob.close();
    await until('he is gone', async () => {
      ann.say('/who');
      for (;;) {
        const line = await ann.next('who is here');
        if (line.startsWith('here: ')) return line === 'here: ann';
      }
    });
    for (const n of [1, 2, 3]) ann.say(`line ${n}`);
    for (const n of [1, 2, 3]) {
      assert.equal(split(await ann.next('her own line')).text, `ann: line ${n}`);
    }
    assert.deepEqual(listeningPorts(chat.pid), [port], 'no listener but the chat\'s');
    await chat.kill();

    chat = new Chat(port, settings);
    const again = await chat.enter(`bob ${seen.cursor}`);
    for (const n of [1, 2, 3]) {
      assert.equal(split(await again.next(`what he missed, ${n}`)).text, `ann: line ${n}`);
    }
    const eve = await chat.enter('eve');
    eve.say('new here');
    assert.equal(split(await again.next('a live line')).text, 'eve: new here');
    assert.equal(split(await eve.next('her line, and nothing older')).text, 'eve: new here');
    assert.equal(chat.said.includes('CRASH'), false, chat.said);
  } finally {
    await chat.kill();
  }
});

for (const [settings, sentence] of [
  [`#{'public.listen' => "0.0.0.0:80"}`, /an embedded Halley has no such setting/],
  [`#{'history.retention' => "soon"}`, /history\.retention: must be a duration such as 500ms/],
  [`#{'data.dir' => 7.5}`, /data\.dir: must be a string or a whole number/],
]) {
  test(`a wrong setting ends the start with a sentence: ${settings}`, async () => {
    const chat = new Chat(await freePort(), settings);
    const [code] = await chat.ended;
    assert.notEqual(code, 0);
    assert.match(chat.said, sentence);
  });
}
