// Where a test's pictures of pages go: with `DOCS_IMAGES=1` those that README or a guide shows go
// to docs/images. All others go to the test's scratch folder.

import { mkdirSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const IMAGES = join(ROOT, 'docs/images');
const GUIDES = join(ROOT, 'docs/guides');

/** The path for the picture `file`, in `scratch` or, with `DOCS_IMAGES=1`, in docs/images. */
export function pictureAt(file, scratch) {
  const folder = process.env.DOCS_IMAGES === '1' && isShown(file) ? IMAGES
    : join(scratch, 'images');
  mkdirSync(folder, { recursive: true });
  return join(folder, file);
}

function isShown(file) {
  const guides = readdirSync(GUIDES).map((name) => join(GUIDES, name));
  return [join(ROOT, 'README.md'), ...guides]
    .some((page) => readFileSync(page, 'utf8').includes(`images/${file}`));
}
