// Debian's Chromium and Firefox, driven by playwright-core.

import playwright, { chromium } from 'playwright-core';

// Playwright calls it an experiment, as its own Firefox is another one than Debian's.
const { _bidiFirefox: firefox } = playwright;

/** A browser without a window. As root, in a container, Chromium can't have its sandbox. */
export function openBrowser(options = {}) {
  const args = process.getuid() === 0 ? ['--no-sandbox'] : [];
  return chromium.launch({ executablePath: '/usr/bin/chromium', args, timeout: 60_000,
    ...options });
}

/** Firefox without a window, by WebDriver BiDi. */
export const openFirefox = () =>
  firefox.launch({ executablePath: '/usr/bin/firefox-esr', timeout: 60_000 });
