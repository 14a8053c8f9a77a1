// Server keys: one that the checker itself uses, and others that faults make and revoke. A key that
// was shown works from then on, and one whose revoking was confirmed opens nothing.

import { http } from '../../lib/client.mjs';
import { until } from '../../lib/wait.mjs';

const OWN_SCOPES = 'publish,follow,read,admin';
const NOTICED_MS_MAX = 5_000;

export class Keys {
  headers = {};
  /** name -> {key, state: 'good' | 'revoked' | 'unknown'} */
  #keys = new Map();
  #count = 0;

  constructor(world) {
    this.world = world;
  }

  async begin() {
    this.headers = { authorization: `Bearer ${await this.#run('create', 'checker', OWN_SCOPES)}` };
  }

  /** Gives the key, or null if the command failed. */
  async #run(what, name, scopes) {
    const options = scopes === undefined ? [] : ['--scope', scopes];
    const { code, stdout } = await this.world.server.halley.command('key', what, name, ...options);
    return code === 0 ? stdout.trim().split('\n').at(-1).trim() : null;
  }

  async #create() {
    this.#count += 1;
    const name = `k${this.#count}`;
    const key = await this.#run('create', name, 'read');
    if (key === null) return;
    this.#keys.set(name, { key, state: this.world.isDark ? 'unknown' : 'good' });
  }

  /** One key more, or one less. */
  async change(random) {
    const good = [...this.#keys].filter(([, { state }]) => state === 'good');
    if (good.length > 0 && random.chance(0.4)) await this.#revoke(random.pick(good)[0]);
    else await this.#create();
  }

  async #revoke(name) {
    const known = this.#keys.get(name);
    known.state = 'unknown';
    const done = await this.#run('revoke', name);
    if (done !== null && !this.world.isDark) known.state = 'revoked';
  }

  /** Whatever was told about keys holds. */
  async check() {
    if (!await this.#answers('no key at all', {}, 401)) return;
    for (const [name, { key, state }] of this.#keys) {
      if (state === 'unknown') continue;
      const headers = { authorization: `Bearer ${key}` };
      const wanted = state === 'good' ? 200 : 401;
      if (!await this.#answers(`the ${state} key ${name}`, headers, wanted)) return;
    }
  }

  /** Gives whether a request with these headers gets that status, if only after a moment. */
  async #answers(what, headers, status) {
    let got;
    try {
      await until(what, async () => {
        const url = `${this.world.apiUrl}/v1/users/u0/following`;
        got = (await http('GET', url, { headers })).status;
        return got === status;
      }, NOTICED_MS_MAX);
      return true;
    } catch {
      this.world.wrong(`with ${what} a request got ${got}, not ${status}`);
      return false;
    }
  }
}
