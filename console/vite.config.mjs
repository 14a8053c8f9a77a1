// One script and one style sheet under names that stay, for the fixed list of
// `halley_api_console_h`. Nothing in the build depends on when or where it is made.

import { defineConfig } from 'vite';

export default defineConfig({
  base: '/console/',
  esbuild: { jsx: 'automatic', jsxImportSource: 'preact', legalComments: 'none' },
  build: {
    outDir: '../apps/halley_api/priv/console',
    emptyOutDir: true,
    target: 'es2022',
    modulePreload: false,
    cssCodeSplit: false,
    reportCompressedSize: false,
    assetsInlineLimit: 0,
    rollupOptions: {
      output: {
        entryFileNames: 'console.js',
        assetFileNames: 'console[extname]',
        inlineDynamicImports: true,
      },
    },
  },
  // `node_modules/.bin/vite console` beside a Halley that runs.
  server: { proxy: { '/v1': 'http://127.0.0.1:8081', '/metrics': 'http://127.0.0.1:8081' } },
});
