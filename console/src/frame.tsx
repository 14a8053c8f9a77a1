// What stands around every page: where one can go, how the server is, and the keys of the keyboard.

import type { ComponentChildren, JSX } from 'preact';
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import type { Rights } from './api';
import { of, span } from './format';
import type { Live } from './live';
import { go, to, type Route } from './route';
import { useTheme, type Theme } from './theme';
import { Badge } from './ui';

interface Place { page: string; name: string; key: string; scope: 'read' | 'publish' | null }
const PLACES: Place[] = [
  { page: 'overview', name: 'Overview', key: 'o', scope: 'read' },
  { page: 'subjects', name: 'Subjects', key: 's', scope: 'read' },
  { page: 'users', name: 'Users', key: 'u', scope: 'read' },
  { page: 'workers', name: 'Workers', key: 'w', scope: 'read' },
  { page: 'refusals', name: 'Refusals', key: 'r', scope: 'read' },
  { page: 'publish', name: 'Publish', key: 'p', scope: 'publish' },
  { page: 'server', name: 'Server', key: 'v', scope: null },
];
const KEYS_OFF = 'halley-keys-off';
const SECOND_KEY_MS = 1500;

function isTyping(target: EventTarget | null): boolean {
  return target instanceof HTMLElement
    && target.closest('input, textarea, select, dialog[open]') !== null;
}

/** `/` finds, `g` and a letter goes, `?` tells. Off for who has other uses for these keys. */
function useKeys(places: Place[], find: () => void, tell: () => void): void {
  /** When `g` was pressed; what is shown may change before the letter comes. */
  const gAt = useRef(0);
  // Not behind the next picture: whoever sees the page may press a key.
  useLayoutEffect(() => {
    const pressed = (event: KeyboardEvent): void => {
      const other = event.ctrlKey || event.metaKey || event.altKey;
      if (other || isTyping(event.target) || localStorage.getItem(KEYS_OFF) !== null) return;
      const place = places.find((one) => one.key === event.key);
      const isSecond = gAt.current > 0 && event.timeStamp - gAt.current < SECOND_KEY_MS;
      if (isSecond && place !== undefined) {
        go(to(place.page));
      } else if (event.key === '/') {
        find();
      } else if (event.key === '?') {
        tell();
      } else {
        gAt.current = event.key === 'g' ? event.timeStamp : 0;
        return;
      }
      gAt.current = 0;
      event.preventDefault();
    };
    addEventListener('keydown', pressed);
    return () => removeEventListener('keydown', pressed);
  });
}

function Keys({ places, onClose }: { places: Place[]; onClose: () => void }): JSX.Element {
  const dialog = useRef<HTMLDialogElement>(null);
  const [off, setOff] = useState(localStorage.getItem(KEYS_OFF) !== null);
  useEffect(() => { dialog.current?.showModal(); }, []);
  const toggle = (): void => {
    if (off) localStorage.removeItem(KEYS_OFF);
    else localStorage.setItem(KEYS_OFF, '1');
    setOff(!off);
  };
  return (
    <dialog ref={dialog} aria-labelledby="keys" onClose={onClose}>
      <h2 id="keys">Keys</h2>
      <dl class="facts">
        <div><dt><kbd>/</kbd></dt><dd>find a user or subject</dd></div>
        {places.map((place) => <div key={place.key}><dt><kbd>g</kbd> <kbd>{place.key}</kbd></dt>
          <dd>{place.name}</dd></div>)}
        <div><dt><kbd>?</kbd></dt><dd>this list</dd></div>
      </dl>
      <label class="check"><input type="checkbox" checked={!off} onChange={toggle} />{' '}
        These keys are on</label>
      <div class="row end"><button type="button" onClick={onClose}>Close</button></div>
    </dialog>
  );
}

const THEMES: Record<Theme, { next: Theme; name: string; sign: string }> = {
  system: { next: 'dark', name: 'as the system', sign: '◐' },
  dark: { next: 'light', name: 'dark', sign: '●' },
  light: { next: 'system', name: 'light', sign: '○' },
};

function ThemeButton(): JSX.Element {
  const [theme, set] = useTheme();
  const { next, name, sign } = THEMES[theme];
  return (
    <button type="button" class="icon" data-testid="theme" onClick={() => set(next)}
      title={`Colours: ${name}`} aria-label={`Colours: ${name}; change to ${THEMES[next].name}`}>
      <span aria-hidden="true">{sign}</span>
    </button>
  );
}

/** One line: which server, and how it is. What is wrong stands below, with what it means. */
function Health({ live }: { live: Live }): JSX.Element {
  const { status, link } = live;
  if (link === 'lost') return <Badge tone="bad">no answer</Badge>;
  if (status === null) return <Badge>…</Badge>;
  const tone = status.state === 'ready' ? 'good' : status.state === 'draining' ? 'warn' : 'bad';
  return (
    <span class="health">
      <Badge tone={tone}>{status.state.replaceAll('_', ' ')}</Badge>
      <span class="node">{status.node}</span>
      <span class="quiet up">up {span(status.uptime_s)}</span>
    </span>
  );
}

function Banner({ live }: { live: Live }): JSX.Element {
  const { status, link, problem } = live;
  let text: string | null = null;
  if (link === 'lost') text = `What you see is old: ${problem ?? 'no answer'}. Trying again…`;
  else if (status?.state === 'not_ready') text = `Not ready: ${status.why ?? ''}.`;
  else if (status?.state === 'draining') {
    text = `Draining: ${of(status.sessions, 'session')} left, then the server stops.`;
  }
  return <div role="status" aria-live="polite">{text !== null
    && <p class="banner" data-testid="banner">{text}</p>}</div>;
}

export function Frame(props: { live: Live; rights: Rights; route: Route;
  children: ComponentChildren }): JSX.Element {
  const { live, rights, route } = props;
  const [open, setOpen] = useState(false);
  const [telling, setTelling] = useState(false);
  const find = useRef<HTMLInputElement>(null);
  const main = useRef<HTMLElement>(null);
  const places = PLACES.filter(({ scope }) => scope === null || rights.scopes.includes(scope));
  const where = `${route.page}/${route.id ?? ''}`;
  useKeys(places, () => find.current?.focus(), () => setTelling(true));
  const first = useRef(true);
  // Not behind the next picture either: the focus would be taken from whoever types by then.
  useLayoutEffect(() => {
    setOpen(false);
    const name = PLACES.find((place) => place.page === route.page)?.name ?? 'Trace';
    document.title = `${route.id ?? name} · Halley console`;
    if (!first.current) {
      main.current?.focus({ preventScroll: true });
      scrollTo(0, 0);
    }
    first.current = false;
  }, [where]);
  const found = (event: Event): void => {
    event.preventDefault();
    const id = find.current?.value ?? '';
    if (id !== '' && find.current !== null) {
      go(to('find', id));
      find.current.value = '';
    }
  };
  return (
    <div class="frame">
      <a class="skip" href="#main" onClick={(event) => {
        event.preventDefault();
        main.current?.focus();
      }}>To the content</a>
      <header class="top">
        <a class="brand" href={to('overview')}>
          <img src="/console/icon.svg" width="28" height="28" alt="" />Halley</a>
        <Health live={live} />
        {rights.scopes.includes('read') && <form class="find" role="search" onSubmit={found}>
          <input ref={find} type="search" name="find" aria-label="Find a user or subject"
            placeholder="Find a user or subject" maxLength={255} autocomplete="off"
            spellcheck={false} />
        </form>}
        <ThemeButton />
        <button type="button" class="icon keys-button" aria-label="Keys" title="Keys"
          onClick={() => setTelling(true)}>?</button>
        <button type="button" class="icon menu" aria-expanded={open} aria-controls="places"
          onClick={() => setOpen(!open)}>Menu</button>
      </header>
      <nav id="places" class={open ? 'open' : ''} aria-label="Pages">
        {places.map((place) => (
          <a key={place.page} href={to(place.page)}
            aria-current={route.page === place.page ? 'page' : undefined}>{place.name}</a>
        ))}
      </nav>
      <main id="main" ref={main} tabIndex={-1}>
        <Banner live={live} />
        {props.children}
      </main>
      {telling && <Keys places={places} onClose={() => setTelling(false)} />}
    </div>
  );
}
