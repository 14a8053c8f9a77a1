// One connection for all tabs, in Debian's Firefox.

import { openFirefox } from '../../../test/lib/browser.mjs';
import { suite } from './lib/tabs-suite.mjs';

suite(openFirefox, true);
