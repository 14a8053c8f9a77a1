// The client under test, by its adapter: a process that takes commands as lines of JSON and tells
// what its client does. README.md has the lines. It judges nothing.

import { spawn } from 'node:child_process';

const TELL_MS_MAX = 45_000;

export class Client {
  #child;
  #rest = '';
  #watchers = new Set();
  #ref = 0;
  /** Everything it told, in its order, each with its time. */
  told = [];
  errors = '';
  isGone = false;

  constructor([command, ...options], onWant = () => undefined) {
    this.#child = spawn(command, options, { stdio: ['pipe', 'pipe', 'pipe'] });
    this.onWant = onWant;
    this.#child.stdout.on('data', (data) => this.#read(data));
    this.#child.stderr.on('data', (data) => { this.errors += data; });
    this.#child.stdin.on('error', () => {});
    this.exited = new Promise((resolve) => {
      this.#child.on('error', (error) => { this.errors += error.message; resolve(-1); });
      this.#child.on('close', resolve);
    });
    this.exited.then(() => {
      this.isGone = true;
      this.#look();
    });
  }

  say(command) {
    this.#child.stdin.write(`${JSON.stringify(command)}\n`);
  }

  /** Says it and waits for its answer. */
  async ask(command) {
    const ref = (this.#ref += 1);
    this.say({ ...command, ref });
    return this.until(`an answer to ${command.do}`, () =>
      this.told.find((line) => line.ref === ref));
  }

  get events() {
    return this.told.filter((line) => line.event).map((line) => line.event);
  }

  /** What was told of presence. */
  get presence() {
    return this.told.filter((line) => line.presence).map((line) => line.presence);
  }

  get ids() {
    return this.events.map(({ id }) => id);
  }

  get states() {
    return this.told.filter((line) => line.state).map((line) => line.state);
  }

  /** Waits for `value` to be something, looking at each line that comes. */
  until(what, value, ms = TELL_MS_MAX) {
    return new Promise((resolve, reject) => {
      const look = () => {
        const found = value();
        if (!found && !this.isGone) return;
        clearTimeout(timer);
        this.#watchers.delete(look);
        if (found) resolve(found);
        else reject(new Error(`the adapter ended before ${what}`));
      };
      const timer = setTimeout(() => {
        this.#watchers.delete(look);
        reject(new Error(`waited ${ms} ms for ${what}`));
      }, ms);
      this.#watchers.add(look);
      look();
    });
  }

  async stop() {
    this.#child.stdin.end();
    const timer = setTimeout(() => this.#child.kill('SIGKILL'), 3_000);
    await this.exited;
    clearTimeout(timer);
  }

  #read(data) {
    const lines = (this.#rest + data).split('\n');
    this.#rest = lines.pop();
    for (const text of lines.filter(Boolean)) {
      const line = JSON.parse(text);
      this.told.push({ ...line, at: Date.now() });
      if (line.want === 'token') {
        const token = this.onWant();
        if (token !== undefined) this.say({ do: 'token', token });
      }
    }
    this.#look();
  }

  #look() {
    for (const look of [...this.#watchers]) look();
  }
}
