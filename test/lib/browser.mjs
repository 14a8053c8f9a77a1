// Debian's Chromium, driven by playwright-core.

import { chromium } from 'playwright-core';

/** A browser without a window. As root, in a container, Chromium can't have its sandbox. */
export function openBrowser(options = {}) {
  const args = process.getuid() === 0 ? ['--no-sandbox'] : [];
  return chromium.launch({ executablePath: '/usr/bin/chromium', args, timeout: 60_000,
    ...options });
}
