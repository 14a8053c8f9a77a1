// Choices that a seed decides. Not for secrets.

/** The same seed gives the same numbers: mulberry32 (Tommy Ettinger, public domain). */
export class Random {
  #state;

  constructor(seed) {
    this.#state = seed >>> 0;
  }

  /** A number in [0, 1). */
  float() {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let bits = this.#state;
    bits = Math.imul(bits ^ (bits >>> 15), bits | 1);
    bits ^= bits + Math.imul(bits ^ (bits >>> 7), bits | 61);
    return ((bits ^ (bits >>> 14)) >>> 0) / 0x1_0000_0000;
  }

  /** A whole number from `low` to `high`, both possible. */
  int(low, high) {
    return low + Math.floor(this.float() * (high - low + 1));
  }

  chance(probability) {
    return this.float() < probability;
  }

  pick(items) {
    return items[this.int(0, items.length - 1)];
  }

  /** Picks by `item.weight`. */
  weighted(items) {
    let rest = this.float() * items.reduce((sum, { weight }) => sum + weight, 0);
    for (const item of items) {
      rest -= item.weight;
      if (rest < 0) return item;
    }
    return items.at(-1);
  }

  /** `count` different ones of `items`, or all of them. */
  sample(items, count) {
    const rest = [...items];
    const taken = [];
    while (taken.length < count && rest.length > 0) {
      taken.push(...rest.splice(this.int(0, rest.length - 1), 1));
    }
    return taken;
  }

  /** A generator of its own, so that what one part draws doesn't depend on when another does. */
  fork(name) {
    let seed = this.int(0, 0xffffffff);
    for (const letter of name) seed = Math.imul(seed ^ letter.codePointAt(0), 0x01000193);
    return new Random(seed);
  }
}
