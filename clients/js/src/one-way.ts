// The core where there is one transport, which can't be probed.

import { Core } from './core.js';

export class OneWay extends Core {
  protected override silent(): void {
    this.lost({ code: 'silent', atOnce: true });
  }

  protected override choose(): void {}
}
