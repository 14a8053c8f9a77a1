# Starts Autobahn|Testsuite's `wstest`: `wstest.py <site-packages> <wstest's options>`.
#
# Under Python 2.7 alone. The suite imports Twisted's TLS, which needs a native library, and uses it
# for wss:// only: a stand-in without any function. Nothing else of the suite is changed.
import site
import sys
import types

site.addsitedir(sys.argv.pop(1))

import twisted.internet  # noqa: E402

tls = types.ModuleType('ssl')
tls.ClientContextFactory = object
twisted.internet.ssl = sys.modules['twisted.internet.ssl'] = tls

from autobahntestsuite import wstest  # noqa: E402

wstest.run()
