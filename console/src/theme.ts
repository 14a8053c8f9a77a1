// Dark and light: as the system has it, until somebody chooses.

import { useEffect, useState } from 'preact/hooks';

export type Theme = 'system' | 'light' | 'dark';
const KEPT = 'halley-theme';
const dark = matchMedia('(prefers-color-scheme: dark)');

function kept(): Theme {
  const value = localStorage.getItem(KEPT);
  return value === 'light' || value === 'dark' ? value : 'system';
}

function apply(theme: Theme): void {
  const isDark = theme === 'dark' || theme === 'system' && dark.matches;
  document.documentElement.dataset['theme'] = isDark ? 'dark' : 'light';
}

apply(kept());
dark.addEventListener('change', () => apply(kept()));

/** The choice, how to change it, and what it comes to; views that draw need the last. */
export function useTheme(): [Theme, (theme: Theme) => void] {
  const [theme, set] = useState(kept);
  return [theme, (next) => {
    if (next === 'system') localStorage.removeItem(KEPT);
    else localStorage.setItem(KEPT, next);
    apply(next);
    set(next);
  }];
}

/** Calls back whenever the colours are others. */
export function useColours(): string {
  const [shown, show] = useState(document.documentElement.dataset['theme'] ?? 'light');
  useEffect(() => {
    const seen = new MutationObserver(() => {
      show(document.documentElement.dataset['theme'] ?? 'light');
    });
    seen.observe(document.documentElement, { attributeFilter: ['data-theme'] });
    return () => seen.disconnect();
  }, []);
  return shown;
}
