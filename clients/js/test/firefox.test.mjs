// One connection for all tabs, in Debian's Firefox, by WebDriver BiDi.

import playwright from '../../../test/node_modules/playwright-core/index.mjs';
import { suite } from './lib/tabs-suite.mjs';

// Playwright calls it an experiment, as its own Firefox is another one than Debian's.
const { _bidiFirefox: firefox } = playwright;

suite(() => firefox.launch({ executablePath: '/usr/bin/firefox-esr', timeout: 60_000 }), true);
