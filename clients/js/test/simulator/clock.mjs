// Time that passes only by calls, and chance by a seed: the base of the simulator.

const before = (a, b) => a.at < b.at || (a.at === b.at && a.order < b.order);

/** Of a story: what takes more of them goes round in circles. */
const TURNS_MAX = 200_000;

/** Runs what is due, in the order of its time, and of its asking where that is the same. */
export class Clock {
  now = 0;
  #left = TURNS_MAX;
  #heap = [];
  #order = 0;

  /** Gives what `stop` takes. */
  after(ms, run) {
    const one = { at: this.now + Math.max(ms, 0), order: this.#order += 1, run };
    const heap = this.#heap;
    let place = heap.push(one) - 1;
    for (let above; place > 0 && before(one, heap[above = (place - 1) >> 1]); place = above) {
      heap[place] = heap[above];
    }
    heap[place] = one;
    return one;
  }

  stop(one) {
    if (one) one.run = null;
  }

  runUntil(time) {
    while (this.#heap.length && this.#heap[0].at <= time) {
      const { at, run } = this.#take();
      if (run) {
        if ((this.#left -= 1) < 0) throw new Error(`busy without end at ${at}`);
        this.now = at;
        run();
      }
    }
    this.now = time;
  }

  #take() {
    const heap = this.#heap;
    const [first] = heap;
    const last = heap.pop();
    if (!heap.length) return first;
    let place = 0;
    for (;;) {
      let child = 2 * place + 1;
      if (child >= heap.length) break;
      if (child + 1 < heap.length && before(heap[child + 1], heap[child])) child += 1;
      if (!before(heap[child], last)) break;
      heap[place] = heap[child];
      place = child;
    }
    heap[place] = last;
    return first;
  }
}

/** The same numbers for the same seed (mulberry32). */
export function chanceOf(seed) {
  let state = seed;
  const next = () => {
    state = (state + 0x6d2b79f5) | 0;
    let bits = Math.imul(state ^ (state >>> 15), 1 | state);
    bits = (bits + Math.imul(bits ^ (bits >>> 7), 61 | bits)) ^ bits;
    return ((bits ^ (bits >>> 14)) >>> 0) / 2 ** 32;
  };
  return {
    next,
    /** From 0 to below it. */
    below: (most) => Math.floor(most * next()),
    pick: (all) => all[Math.floor(all.length * next())],
    is: (share) => next() < share,
  };
}
