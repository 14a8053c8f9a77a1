// Shared by tests of pages: a tab that notes what it complains about, axe, pictures for the docs.

import assert from 'node:assert/strict';
import { readFileSync, statSync } from 'node:fs';
import { createRequire } from 'node:module';
import { pictureAt } from './images.mjs';

export const WIDE = { width: 1280, height: 860 };
export const PHONE = { width: 390, height: 800 };

const IMAGE_BYTES_MAX = 150 * 1024;
const AXE = createRequire(import.meta.url).resolve('axe-core/axe.min.js');
const UI_MS_MAX = 30_000;

/** A tab in a context of its own, and its complaints. */
export async function openPage(browser, options = {}) {
  const context = await browser.newContext({ viewport: WIDE, locale: 'en-GB', ...options });
  const page = await context.newPage();
  const complaints = [];
  page.setDefaultTimeout(UI_MS_MAX);
  page.on('pageerror', (error) => complaints.push(error.message));
  page.on('console', (message) => {
    // A refused request is an error to the browser; tests look at what the page makes of it.
    const told = message.text();
    const isRequest = /Failed to load resource|WebSocket connection/.test(told);
    if (message.type() === 'error' && !isRequest) complaints.push(told);
  });
  return { context, page, complaints };
}

/** What axe finds that is serious or worse, one line for each. */
export async function serious(page) {
  await page.evaluate(readFileSync(AXE, 'utf8'));
  const { violations } = await page.evaluate(() => globalThis.axe.run(document, {
    resultTypes: ['violations'],
    runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'],
  }));
  return violations.filter(({ impact }) => impact === 'serious' || impact === 'critical')
    .map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).join(' | ').slice(0, 400)}`);
}

/**
 * What can be focused and doesn't show it: an outline of 2 px at least, in a colour that differs
 * from what is behind it by 3:1 (WCAG 2.2, 1.4.11 and 2.4.13). One line for each.
 */
export function unseen(page) {
  return page.evaluate(() => {
    const numbers = (colour) => colour.match(/[\d.]+/g).map(Number);
    const light = (colour) => numbers(colour).slice(0, 3)
      .map((n) => (n / 255 <= 0.04045 ? n / 255 / 12.92 : ((n / 255 + 0.055) / 1.055) ** 2.4))
      .reduce((sum, n, at) => sum + n * [0.2126, 0.7152, 0.0722][at], 0);
    const behind = (element) => {
      for (let one = element.parentElement; one; one = one.parentElement) {
        const { backgroundColor } = getComputedStyle(one);
        if (!/rgba\(.*, 0\)/.test(backgroundColor)) return backgroundColor;
      }
      return 'rgb(255, 255, 255)';
    };
    const before = document.activeElement;
    // What is behind a question can't be reached.
    const reached = document.querySelector('dialog:modal') ?? document;
    const found = [...reached.querySelectorAll('a[href], button, input, textarea, summary,'
      + ' [tabindex="0"]')].filter((one) => {
      if (one.disabled || !one.checkVisibility()) return false;
      // What a click has focused shows nothing, and to focus it again changes nothing.
      document.activeElement.blur();
      one.focus({ focusVisible: true });
      const { outlineStyle, outlineWidth, outlineColor } = getComputedStyle(one);
      const [most, least] = [light(outlineColor), light(behind(one))].sort((a, b) => b - a);
      return outlineStyle === 'none' || parseFloat(outlineWidth) < 2
        || (most + 0.05) / (least + 0.05) < 3;
    });
    document.activeElement.blur();
    before?.focus({ preventScroll: true });
    scrollTo(0, 0);
    return found.map((one) => one.outerHTML.slice(0, 200));
  });
}

/** A picture of what is in view. */
export async function picture(page, folder, name) {
  const path = pictureAt(`${name}.jpg`, folder);
  await page.screenshot({ path, quality: 68, animations: 'disabled', caret: 'hide' });
  const { size } = statSync(path);
  assert.ok(size > 5_000 && size < IMAGE_BYTES_MAX, `${name} has ${size} bytes`);
}
