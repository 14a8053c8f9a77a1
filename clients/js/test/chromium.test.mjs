// One connection for all tabs, in Debian's Chromium.

import { openBrowser } from '../../../test/lib/browser.mjs';
import { suite } from './lib/tabs-suite.mjs';

suite(openBrowser);
