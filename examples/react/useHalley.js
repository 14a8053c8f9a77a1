// Halley in React: one client for the app, and hooks that show what it tells.
//
// `const halley = connect(…)` stands once, outside of components; it shares its connection with
// the other tabs by itself. A component only listens, and ends that when it goes.

import { useEffect, useState, useSyncExternalStore } from 'react';

/** `connecting`, `open`, `reconnecting` or `closed`. */
export function useHalleyState(halley) {
  return useSyncExternalStore(
    (changed) => halley.onState(changed),
    () => halley.state,
    () => 'connecting',
  );
}

/**
 * The last `max` events about a subject, the newest first, and how often some couldn't be told:
 * whoever shows more than that loads it again when `gaps` changes.
 */
export function useHalley(halley, subject, max = 100) {
  const [told, setTold] = useState({ events: [], gaps: 0 });
  useEffect(() => {
    setTold({ events: [], gaps: 0 });
    const offs = [
      halley.on(subject, (event) => setTold(({ events, gaps }) =>
        ({ events: [event, ...events].slice(0, max), gaps }))),
      halley.onGap(() => setTold(({ events, gaps }) => ({ events, gaps: gaps + 1 }))),
    ];
    return () => offs.forEach((off) => off());
  }, [halley, subject, max]);
  return told;
}
