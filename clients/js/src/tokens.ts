// The user's token, from wherever it comes. Who asks twice at once is given the same.

export type TokenOption = string | (() => string | null | Promise<string | null>);

export class Tokens {
  readonly kind: 'none' | 'fixed' | 'asked';
  /** The last one that was given. */
  current: string | null | undefined;
  #coming: Promise<string | null | undefined> | undefined;

  constructor(readonly option: TokenOption | undefined) {
    this.kind = typeof option === 'function' ? 'asked' : option === undefined ? 'none' : 'fixed';
  }

  /** The one in hand, or a new one. */
  get(again = false): Promise<string | null | undefined> {
    if (this.current && !again) return Promise.resolve(this.current);
    return this.#coming ??= this.#ask().finally(() => { this.#coming = undefined; });
  }

  async #ask(): Promise<string | null | undefined> {
    const { option } = this;
    return this.current = typeof option === 'function' ? await option() : option;
  }
}
