// The server itself: what it is, its history, the key that this tab has, and the drain.

import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { ask, drain, type Rights } from '../api';
import { bytes, count, day, of, span } from '../format';
import type { Live, Status } from '../live';
import { Badge, Card, Confirm, Problem, useAsked } from '../ui';

const HISTORY_MS = 5000;

interface History {
  events: number; bytes: number; bytes_max: number | null; retention_ms: number | null;
  kept_ms: number | null;
  oldest_at: number | null; queue_bytes: number; refusing: string | null; damaged_total: number;
}

function Facts({ facts }: { facts: [string, JSX.Element | string][] }): JSX.Element {
  return <dl class="facts">{facts.map(([name, fact]) =>
    <div key={name}><dt>{name}</dt><dd>{fact}</dd></div>)}</dl>;
}

/** Subjects with a longer age keep all on disk for as long. */
function kept({ retention_ms: ms, kept_ms: onDisk }: History): string {
  if (ms === null || onDisk === null) return '–';
  return span(ms / 1000) + (onDisk > ms ? `, on disk ${span(onDisk / 1000)}` : '');
}

function HistoryCard(): JSX.Element {
  const { value, error } = useAsked(() => ask<History>('/v1/history'), [], HISTORY_MS);
  return (
    <Card title="History" testid="history" note="What a client that was away can still get.">
      <Problem error={error} />
      {value !== null && <Facts facts={[
        ['Events', count(value.events)],
        ['On disk', `${bytes(value.bytes)}${value.bytes_max === null ? ''
          : ` of ${bytes(value.bytes_max)}`}`],
        ['Kept for', kept(value)],
        ['Oldest', value.oldest_at === null ? '–' : day(value.oldest_at)],
        ['Waits for the disk', bytes(value.queue_bytes)],
        ['Takes events', value.refusing === null ? <Badge tone="good">yes</Badge>
          : <Badge tone="bad">{value.refusing.replaceAll('_', ' ')}</Badge>],
        ['Damaged', value.damaged_total === 0 ? 'nothing' : of(value.damaged_total, 'range')],
      ]} />}
    </Card>
  );
}

function Drain({ status }: { status: Status }): JSX.Element {
  const [asking, setAsking] = useState(false);
  const [typed, setTyped] = useState('');
  const [error, setError] = useState<unknown>(null);
  const begin = (): void => {
    setAsking(false);
    drain(status.node).then(() => setError(null), setError);
  };
  return (
    <Card title="Drain and stop" testid="drain" note={`As SIGTERM does: streams end evenly over
      ${span(status.drain_ms / 1000)}, each with its cursor, and clients go to another server or
      come back to this one when it is there again. Then the server stops.`}>
      <Problem error={error} />
      {status.state === 'draining'
        ? <p role="status" class="warn">Draining: {of(status.sessions, 'session')} left.</p>
        : <button type="button" class="danger" onClick={() => { setTyped(''); setAsking(true); }}>
            Drain {status.node}…</button>}
      {asking && <Confirm title="Drain and stop this server?" yes="Drain and stop" onYes={begin}
        disabled={typed !== status.node} onNo={() => setAsking(false)}>
        <p>{of(status.sessions, 'session')} end over {span(status.drain_ms / 1000)}. This can’t be
          taken back, and the console ends with it.</p>
        <label>Type <code>{status.node}</code> to confirm
          <input value={typed} autocomplete="off" spellcheck={false}
            onInput={(event) => setTyped(event.currentTarget.value)} /></label>
      </Confirm>}
    </Card>
  );
}

const SCOPES: Record<string, string> = { publish: 'publish test events', follow: 'change follows',
  read: 'see everything here', admin: 'close sessions, drain' };

export function Server(props: { live: Live; rights: Rights; signOut: () => void }): JSX.Element {
  const { live: { status, streams }, rights } = props;
  return (
    <>
      <h1>Server</h1>
      <div class="pair">
        <div>
          {status !== null && <Card title="This server"><Facts facts={[
            ['Node', <span class="id">{status.node}</span>],
            ['Version', status.version ?? '–'],
            ['Up for', span(status.uptime_s)],
            ['Users enter', status.auth_mode === 'jwt' ? 'with a token' : 'as whoever they say'],
            ['Streams on port', `${status.public_port}`],
            ['What you see', streams ? 'comes through Halley, each second'
              : 'is asked for, each second'],
          ]} /></Card>}
          <Card title="Your key" testid="key">
            <p>{rights.open ? 'This API asks for no key: whoever reaches it may do everything.'
              : 'Kept in this tab until it is closed.'}</p>
            <ul class="bare">{(['read', 'publish', 'follow', 'admin'] as const).map((scope) => (
              <li key={scope}><Badge tone={rights.scopes.includes(scope) ? 'good' : 'plain'}>
                {rights.scopes.includes(scope) ? 'may' : 'may not'}</Badge>{' '}
                {SCOPES[scope]} <span class="quiet">({scope})</span></li>
            ))}</ul>
            {!rights.open && <button type="button" onClick={props.signOut}>Sign out</button>}
          </Card>
        </div>
        <div>
          <HistoryCard />
          {status !== null && rights.scopes.includes('admin') && <Drain status={status} />}
        </div>
      </div>
    </>
  );
}
