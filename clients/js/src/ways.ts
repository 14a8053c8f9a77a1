// The core where there are several transports, some of them with a way back: which one is next, and
// asking a server that is silent.
//
// Invariants:
// - A transport counts as broken by what it did, never because the network was away.
// - Ten minutes later, or in another network, the first is tried again; after a minute if it worked
//   before, then in place of a connection that is there.

import { Core, Ms, Phase, type Shell } from './core.js';
import type { Loss, Message } from './types.js';

export interface WayShell extends Shell {
  /** The server is to say something; gives false where it can't be asked. */
  probe(): boolean;
}

export class WayCore extends Core {
  declare readonly shell: WayShell;
  /** Since when transports below this one count as broken. */
  #worseSince = 0;
  #stalls = 0;
  #probed: boolean | undefined;
  /** The first transport has worked in this network. */
  #worked: boolean | undefined;

  override heard(): void {
    super.heard();
    // What comes with the welcome may be all that a proxy lets through.
    if (this.heardAt - this.liveAt > Ms.Welcome) this.#stalls = 0;
    this.#probed = false;
    this.#worked ||= !this.transport;
  }

  /** What worked before was no proxy's fault, but that of a server that was away: once more. */
  override message(message: Message): void {
    super.message(message);
    if (this.transport && this.#worked && this.clock.now() - this.#worseSince > Ms.Again) {
      this.#worked = false;
      this.#worseSince = -Infinity;
      this.lost({ code: 'reopen', atOnce: true, quiet: true });
    }
  }

  override wake(newNetwork?: boolean): void {
    const now = this.clock.now();
    if (newNetwork) this.#worseSince = -Infinity;
    if (this.phase === Phase.Live && now - this.heardAt > Ms.Probe && this.#ask()) {
      this.due = Math.min(this.due, now + Ms.Probe);
      this.arm();
    } else {
      super.wake();
    }
  }

  protected override silent(): void {
    if (!this.#probed && this.#ask()) {
      this.due = this.clock.now() + Ms.Probe;
      return;
    }
    // Once may be the network; what is cut off after its first bytes again is held by a proxy.
    const broken = (this.#stalls += 1) > 1;
    if (broken) this.#worked = false;
    this.lost({ code: 'silent', broken, atOnce: true });
  }

  /** Once for each silence. */
  #ask(): boolean {
    return this.#probed ||= this.shell.probe();
  }

  protected override open(): void {
    if (this.clock.now() - this.#worseSince > Ms.Best) this.transport = 0;
    super.open();
  }

  /**
   * The next transport where this one doesn't work here. Where it isn't the transport's fault, the
   * first again: a WebSocket can't say why it didn't open, the one behind it just did.
   */
  protected override choose(loss: Loss, wasLive: boolean): void {
    if (loss.broken) {
      if (!this.transport) this.#worseSince = this.clock.now();
      this.transport = (this.transport + 1) % this.rules.ways;
      this.#stalls = 0;
    } else if (!wasLive && loss.code !== 'token_callback') {
      this.transport = 0;
    }
  }
}
