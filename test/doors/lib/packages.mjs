// The files that `make doors` takes from package registries, each with its SHA-256. None of it
// comes into the tree.

/** Python 2.7, which Autobahn|Testsuite needs and Debian 12 hasn't: Debian 11's PyPy. */
export const DEBIAN = {
  release: 'bullseye',
  keyring: '/usr/share/keyrings/debian-archive-keyring.gpg',
  packages: {
    'libffi7=3.3-6': '30ca89bfddae5fa6e0a2a044f22b6e50cd17c4bc6bc850c579819aeab7101f0f',
    'libssl1.1=1.1.1w-0+deb11u1':
      'aadf8b4b197335645b230c2839b4517aa444fd2e8f434e5438c48a18857988f7',
    'pypy=7.3.3+dfsg-2': '9df6ce7c216c5a365850c43b11a11b0e042eb4deb60f181970e72c05f6b894da',
    'pypy-lib=7.3.3+dfsg-2': 'df3a24b5d7cdaa5ad9637374502e7c19e3d0aa300545b197cdcc5645317c2842',
    'pypy-dev=7.3.3+dfsg-2': '2aef030a8ad55f684b69b3d3efe86572f941456a9ab9b9698cbd8cff09369233',
  },
};

/** Source packages whose test corpora are read; nothing of them runs here. */
export const CORPORA = {
  // JSONTestSuite, byte by byte, in data/parsing.
  'orjson==3.10.7': '75ef0640403f945f3a1f9f6400686560dbfb0fb5b16589ad62cd477043c4eee3',
  // tests/requests.
  'gunicorn==23.0.0': 'f014447a0101dc57e294f6c18ca6b40227a4c90e9bdb586042628030cba004ec',
  // llhttp 9.3.0 whole, in vendor/llhttp.
  'aiohttp==3.13.2': '40176a52c186aefef6eb3cad2cdd30cd06e3afbe88fe8ab2af9c0b90f228daca',
};

/** What PyPy needs to install by pip. */
export const BOOT = {
  'pip==20.3.4': '217ae5161a0e08c0fb873858806e3478c9775caffce5168b50ec885e358c199d',
  'setuptools==44.0.0': '180081a244d0888b0065e18206950d603f6550721bd6f8c0a10221ed467dd78e',
  'incremental==16.10.1': 'cc00a35f9e9621ddec0a5e7d17271f3f26244873c4aec67eda06f2db8302e04b',
  'six==1.16.0': '8abb2f1d86890a2dfb989f9a77cfcfd3e47c2a354b01111771326f8aa26e0254',
  'typing==3.10.0.0': 'c7219ef20c5fbf413b4567092adfc46fa6203cb8454eda33c3fc1afe1398a308',
};

/** Autobahn|Testsuite and the versions that it asks for, those that only TLS needs aside. */
export const AUTOBAHN = {
  ...BOOT,
  'autobahntestsuite==25.10.1':
    'b57ee6b22de624a03256878ad453c9897d2ad7ee08a4c38b35ee2847637e1383',
  'autobahn==0.10.9': '3fecc1e2a26a0421128ddcfb4e577f0bc669dd65d0e0fdad1c773965cbcef75a',
  'Twisted==19.10.0': '7394ba7f272ae722a74f3d969dcf599bc4ef093bc392038748a490f1724a515d',
  'txaio==2.1.0': 'b94e3dbc83760b68955160fc61a2c34e2798f7a90c41672560f40dfd2946a864',
  'zope.interface==4.6.0': '1b3d0dcabc7c90b470e59e38a9acaa361be43b3a6ea644c0063951964717f0e5',
  'Automat==20.2.0': 'b6feb6455337df834f6c9962d6ccf771515b7d939bca142b29c20c2376bc6111',
  'Jinja2==2.11.3': '03e47ad063331dd6a3f04a43eddca8a966a26ba0c5b7207a9a9e4e08f1b29419',
  'MarkupSafe==1.1.1': '29872e92839765e546828bb7754a68c418d927cd064fd4708fab9fe9c8bb116b',
  'PyHamcrest==1.10.1': 'f7ae19ddfd71f11a421bcec9608d708c0fab816db98b51fdbc672a6d99a30874',
  'attrs==21.4.0': '2d27e3784d7a565d36ab851fe94887c5eccd6a463168875832a1be79c82828b4',
  'constantly==15.1.0': 'dd2fa9d6b1a51a83f0d7dd76293d734046aa176e384bf6e33b7e44880eb37c5d',
  'hyperlink==21.0.0': 'e6b14c37ecb73e89c77d78cdb4c2cc8f3fb59a885c5b3f819ff4ed80f25af1b4',
  'idna==2.10': 'b97d804b1e9b523befed77c48dacec60e6dcb0b5391d57af6a65a312a90648c0',
  'linecache2==1.0.0': 'e78be9c0a0dfcbac712fe04fbf92b96cddae80b1b842f24248214c8496f006ef',
  'traceback2==1.4.0': '8253cebec4b19094d67cc5ed5af99bf1dba1285292226e98a31929f87a5d6b23',
  'unittest2==1.1.0': '13f77d0875db6d9b435e1d4f41e74ad4cc2eb6e1d5c824996092b3430f088bb8',
};

/** Project Wycheproof's vectors, a Go module; the sum is that of go.sum. */
export const WYCHEPROOF = {
  module: 'github.com/c2sp/wycheproof@v0.0.0-20260902155932-3fa63dd0344a',
  sum: 'h1:pNbL2nztRsWfW/ispAwsvcDFxs9Id38uIsR2/Up5G2c=',
};
