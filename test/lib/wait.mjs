// Waiting with an end: everything here gives up by itself and says what it waited for.

/** Far beyond what anything takes: a busy machine may let a program wait for seconds. */
export const PATIENCE_MS = 30_000;

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Calls `probe` until it gives something truthy, and gives that; what it throws counts as no. */
export async function until(what, probe, ms = PATIENCE_MS) {
  const end = Date.now() + ms;
  let last;
  for (;;) {
    try {
      const found = await probe();
      if (found) return found;
    } catch (error) {
      last = error;
    }
    if (Date.now() >= end) {
      throw new Error(`${what}: not within ${ms} ms${last ? ` (${last.message})` : ''}`);
    }
    await sleep(25);
  }
}

/** The promise, or an error that says what did not come in time. */
export function within(what, promise, ms = PATIENCE_MS) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what}: not within ${ms} ms`)), ms);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

/** A queue that is read by waiting: `next` gives items in order, `none` proves silence. */
export class Queue {
  #items = [];
  #waiting = [];
  #ended = null;

  push(item) {
    const reader = this.#waiting.shift();
    if (reader) reader.resolve(item);
    else this.#items.push(item);
  }

  /** No more will come; readers who wait get an error that says why. */
  end(why) {
    this.#ended = why;
    for (const reader of this.#waiting.splice(0)) reader.reject(new Error(`ended: ${why}`));
  }

  get ended() {
    return this.#ended;
  }

  next(what = 'next item', ms = PATIENCE_MS) {
    if (this.#items.length > 0) return Promise.resolve(this.#items.shift());
    if (this.#ended !== null) return Promise.reject(new Error(`${what}: ended: ${this.#ended}`));
    const reader = {};
    const promise = new Promise((resolve, reject) => Object.assign(reader, { resolve, reject }));
    this.#waiting.push(reader);
    return within(what, promise, ms).catch((error) => {
      this.#waiting = this.#waiting.filter((other) => other !== reader);
      throw error;
    });
  }

  /** Everything that has arrived and was not taken yet. */
  drain() {
    return this.#items.splice(0);
  }

  async take(count, what = 'items', ms = PATIENCE_MS) {
    const items = [];
    while (items.length < count) {
      items.push(await this.next(`${what} ${items.length + 1} of ${count}`, ms));
    }
    return items;
  }

  /** Fails if anything arrives within `ms`. */
  async none(what = 'silence', ms = 300) {
    await sleep(ms);
    if (this.#items.length > 0) {
      throw new Error(`${what}: got ${JSON.stringify(this.#items[0])}`);
    }
  }
}
