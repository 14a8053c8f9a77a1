// The console: who may see it, then its frame and the page that the address names.

import type { JSX } from 'preact';
import { useEffect, useMemo, useState } from 'preact/hooks';
import { keepKey, keptKey, Refused, rights as rightsOf, type Rights } from './api';
import { Frame } from './frame';
import { Feed, useLive, type Live } from './live';
import { Find } from './pages/find';
import { Overview } from './pages/overview';
import { Publish } from './pages/publish';
import { Refusals } from './pages/refusals';
import { Server } from './pages/server';
import { Subject, Subjects } from './pages/subjects';
import { User, Users } from './pages/users';
import { Why } from './pages/why';
import { Workers } from './pages/workers';
import { to, useRoute, type Route } from './route';
import { SignIn } from './sign-in';
import { Card } from './ui';

const RETRY_MS = 2000;

interface Shown { live: Live; rights: Rights; route: Route; signOut: () => void }

function Page({ live, rights, route, signOut }: Shown): JSX.Element {
  const { page, id, query } = route;
  const reads = rights.scopes.includes('read');
  if (page === 'publish' && rights.scopes.includes('publish')) return <Publish />;
  if (page === 'server') return <Server live={live} rights={rights} signOut={signOut} />;
  if (!reads) {
    return <Card title="This key may not look" wide><p>What there is to see needs the scope{' '}
      <code>read</code>. Sign in with another key, or see what this one may do under{' '}
      <a href={to('server')}>Server</a>.</p></Card>;
  }
  switch (page) {
    case 'overview': return <Overview live={live} />;
    case 'subjects':
      return id === null ? <Subjects /> : <Subject id={id} rights={rights} key={id} />;
    case 'users': return id === null ? <Users live={live} />
      : <User id={id} rights={rights} key={id} />;
    case 'find': return id === null ? <Users live={live} /> : <Find id={id} key={id} />;
    case 'why': return <Why id={id} user={query.get('user')} />;
    case 'workers': return <Workers live={live} />;
    case 'refusals': return <Refusals live={live} id={id} />;
    default: return <Card title="Nothing here" wide><p><a href={to('overview')}>
      Back to the overview</a></p></Card>;
  }
}

type Entry = Rights | 'asking' | 'signed-out' | 'away';

export function App(): JSX.Element {
  const [entry, setEntry] = useState<Entry>('asking');
  const [said, setSaid] = useState<string | null>(null);
  const route = useRoute();
  const feed = useMemo(() => new Feed(() => {
    setSaid(keptKey() === null ? 'The API asks for a key now.'
      : 'The key of this tab was revoked. Sign in with another one.');
    keepKey(null);
    setEntry('signed-out');
  }), []);
  const live = useLive(feed);
  const enter = (): void => {
    rightsOf(keptKey()).then((found) => { setSaid(null); setEntry(found); }, (error: unknown) => {
      const away = !(error instanceof Refused) || error.status === 0 || error.status >= 500;
      if (!away && keptKey() !== null) {
        keepKey(null);
        setSaid('The key of this tab is not valid any more.');
      }
      setEntry(away ? 'away' : 'signed-out');
    });
  };
  useEffect(enter, []);
  useEffect(() => {
    if (entry !== 'away') return undefined;
    const timer = setInterval(enter, RETRY_MS);
    return () => clearInterval(timer);
  }, [entry]);
  const reads = typeof entry === 'object' && entry.scopes.includes('read');
  useEffect(() => {
    if (reads) feed.start();
    return () => feed.end();
  }, [reads, feed]);
  if (entry === 'asking') return <main class="wait" aria-busy="true" />;
  if (entry === 'away') {
    return <main class="wait"><p role="alert">The server does not answer. Trying again…</p></main>;
  }
  if (entry === 'signed-out') return <SignIn said={said} onEnter={(found) => setEntry(found)} />;
  const signOut = (): void => { keepKey(null); setSaid(null); setEntry('signed-out'); };
  return (
    <Frame live={live} rights={entry} route={route}>
      <Page live={live} rights={entry} route={route} signOut={signOut} />
    </Frame>
  );
}
