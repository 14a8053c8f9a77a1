// A user: sessions, what waits for each, what the user follows and what was published there.

import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import {
  behind, closeSessions, eventsOf, followingOf, sessionsOf, slow, userOf, type Event, type Rights,
  type Session,
} from '../api';
import { ago, bytes, clock, count, of, span } from '../format';
import type { Live } from '../live';
import { go, to } from '../route';
import {
  AskId, Badge, Card, Confirm, Empty, Problem, SubjectLink, Table, useAsked, UserLink,
} from '../ui';
import { EventRow, Ids } from './subjects';

const SESSIONS_MS = 2000;
const SLOW_MS = 5000;
const BEHIND_MS = 2000;
const FOLLOWING = 50;
/** Of how many subjects the last events are gathered. */
const SUBJECTS_MAX = 12;
const EVENTS_EACH = 5;
const EVENTS_MAX = 20;

/** What becomes of clients that are too slow, by `public.slow_consumer`. */
const BY_POLICY = [
  ['disconnect', 'connections closed', 'halley_edge_slow_consumers_total'],
  ['drop_oldest', 'waiting events dropped', 'halley_edge_events_dropped_total'],
  ['latest_per_subject', 'waiting events replaced', 'halley_edge_events_conflated_total'],
] as const;

/** Since when a client has taken nothing; one that was there a moment ago reads, but slowly. */
const since = (ms: number): string => ms < 1000 ? 'it reads slowly'
  : `for ${span(ms / 1000)}`;

function SlowNow({ live }: { live: Live }): JSX.Element {
  const { value, error } = useAsked(behind, [], BEHIND_MS);
  const { workers = [] } = live.status ?? {};
  const waiting = workers.reduce((sum, one) => sum + (one.outbox_bytes ?? 0), 0);
  const rows = value?.behind ?? [];
  return (
    <Card title="Slow now" wide testid="slow-now"
      note={<>Whose clients don’t take what waits for them: the 20 with most waiting.{' '}
        {bytes(waiting)} wait for all clients together.{(value?.unknown ?? 0) > 0
          && <> {of(value?.unknown ?? 0, 'worker')} didn’t say.</>}</>}>
      <Problem error={error} />
      {rows.length === 0
        ? <Empty>{value === null ? 'Looking…' : 'Nobody.'}</Empty>
        : <Table stacks caption="Sessions that are behind" numeric={[2, 3]}
            keys={rows.map((one, at) => `${at} ${one.user ?? ''}`)}
            head={['User', 'Transport', 'Waits', 'Events', 'Takes nothing', 'Worker']}
            rows={rows.map((one) => [
              one.user === null ? 'a visitor' : <UserLink id={one.user} />,
              TRANSPORTS[one.transport] ?? one.transport, bytes(one.outbox_bytes),
              count(one.outbox_events), since(one.outbox_ms), one.worker,
            ])} />}
    </Card>
  );
}

function SlowLately({ live }: { live: Live }): JSX.Element {
  const { counted = {} } = live.status ?? {};
  return (
    <Card title="Slow lately" wide testid="slow-lately"
      note="What clients lost in ten minutes, as they took their events too slowly.">
      <Table stacks caption="What clients lost by slowness" numeric={[2, 3]}
        keys={BY_POLICY.map(([policy]) => policy)}
        head={['public.slow_consumer', 'What', 'Lately', 'In all']}
        rows={BY_POLICY.map(([policy, what, name]) => {
          const [total, lately] = counted[name] ?? [0, 0];
          return [<code>{policy}</code>, what, count(lately), count(total)];
        })} />
    </Card>
  );
}

export function Users({ live }: { live: Live }): JSX.Element {
  const { value, error } = useAsked(slow, [], SLOW_MS);
  const by = new Map<string, { times: number; last: number }>();
  for (const one of value?.ended ?? []) {
    const known = by.get(one.user);
    if (known === undefined) by.set(one.user, { times: 1, last: one.at });
    else known.times += 1;
  }
  const rows = [...by.entries()];
  return (
    <>
      <h1>Users</h1>
      <AskId label="Look at a user" button="Show" placeholder="such as ann"
        onAsk={(id) => go(to('users', id))} />
      <Problem error={error} />
      <SlowNow live={live} />
      <SlowLately live={live} />
      <Card title="Closed for it" wide testid="slow"
        note="Whose connections were closed because they took their events too slowly: the last 100.
          A client that comes back with its cursor misses nothing.">
        {rows.length === 0
          ? <Empty>{value === null ? 'Looking…' : 'None that is remembered.'}</Empty>
          : <Table caption="Clients that were closed for slowness" numeric={[2]}
              keys={rows.map(([user]) => user)}
              head={['User', 'Last closed', 'Times']}
              rows={rows.map(([user, { times, last }]) =>
                [<UserLink id={user} />, `${ago(last)}, ${clock(last)}`, count(times)])} />}
      </Card>
    </>
  );
}

const TRANSPORTS: Record<string, string> = { sse: 'SSE', ndjson: 'NDJSON', websocket: 'WebSocket',
  poll: 'long-poll', test: '/test', process: 'Erlang process',
  remote: 'Erlang back end' };
const TONES: Record<string, 'good' | 'warn' | 'plain'> = { live: 'good', held: 'warn',
  opening: 'warn', closing: 'warn', unknown: 'warn' };
const STATES: Record<string, string> = { held: 'catching up', unknown: 'worker is silent' };

export const transport = (session: Session): string =>
  TRANSPORTS[session.transport] ?? session.transport;

export const StateBadge = ({ state }: { state: string }): JSX.Element =>
  <Badge tone={TONES[state] ?? 'plain'}>{STATES[state] ?? state}</Badge>;

/** What waits for a client, and what it has lost. */
export function waits(session: Session): string {
  if (session.outbox_bytes === undefined) return '–';
  const told = [session.outbox_bytes === 0 ? 'nothing'
    : (session.outbox_ms ?? 0) < 1000 ? bytes(session.outbox_bytes)
      : `${bytes(session.outbox_bytes)} for ${span((session.outbox_ms ?? 0) / 1000)}`];
  if ((session.held ?? 0) > 0) told.push(`${of(session.held ?? 0, 'event')} held`);
  if ((session.dropped ?? 0) > 0) told.push(`${count(session.dropped)} dropped`);
  if ((session.conflated ?? 0) > 0) told.push(`${count(session.conflated)} replaced`);
  return told.join(', ');
}

function Sessions({ id, rights }: { id: string; rights: Rights }): JSX.Element {
  const { value, error, again } = useAsked(() => sessionsOf(id), [id], SESSIONS_MS);
  const [asking, setAsking] = useState(false);
  const [closed, setClosed] = useState<number | null>(null);
  const [failed, setFailed] = useState<unknown>(null);
  const close = (): void => {
    setAsking(false);
    closeSessions(id).then((done) => { setClosed(done.closed); again(); }, setFailed);
  };
  const total = value?.sessions_total ?? 0;
  return (
    <Card title="Sessions" testid="sessions" wide
      tools={rights.scopes.includes('admin') && total > 0
        && <button type="button" class="danger" onClick={() => setAsking(true)}>
          Close {total === 1 ? 'it' : `all ${count(total)}`}</button>}>
      <Problem error={error ?? failed} />
      <div role="status" data-testid="closed">{closed !== null
        && <p class="good">Closed {of(closed, 'session')}. Clients come back by themselves.</p>}
      </div>
      {value !== null && total === 0 && <Empty>Not connected now.</Empty>}
      {value !== null && total > 0 && <Table stacks caption={`Sessions of ${id}`}
        head={['Transport', 'State', 'Waits', 'Worker']}
        rows={value.sessions.map((one) => [transport(one), <StateBadge state={one.state} />,
          waits(one), one.worker === undefined ? '–' : one.worker,
        ])} />}
      {asking && <Confirm title={`Close the sessions of ${id}?`} yes="Close them" onYes={close}
        onNo={() => setAsking(false)}>
        <p>{total === 1 ? 'A connection is' : `${count(total)} connections are`} closed.
          Nobody is banned and nothing is lost: each client comes back with its cursor.</p>
      </Confirm>}
    </Card>
  );
}

/** The last events of what the user follows, the user's own subject included. */
async function lastEvents(id: string): Promise<{ events: Event[]; all: boolean }> {
  const { following, next } = await followingOf(id, null, SUBJECTS_MAX);
  const pages = await Promise.all([id, ...following.filter((subject) => subject !== id)]
    .map((subject) => eventsOf(subject, null, EVENTS_EACH)));
  // One about several subjects is on the page of each.
  const byId = new Map(pages.flatMap((page) => page.events).map((event) => [event.id, event]));
  const events = [...byId.values()].sort((a, b) => b.at - a.at);
  return { events: events.slice(0, EVENTS_MAX), all: next === null };
}

function Events({ id }: { id: string }): JSX.Element {
  const { value, error } = useAsked(() => lastEvents(id), [id], SLOW_MS);
  return (
    <Card title="Last events" testid="events"
      note={`Of ${id} and the ${value?.all === false ? `first ${SUBJECTS_MAX} ` : ''}subjects
        that ${id} follows. Private ones aren’t listed.`}>
      <Problem error={error} />
      {value?.events.length === 0 && <Empty>Nothing within history.retention.</Empty>}
      <ul class="events">{value?.events.map((event) =>
        <EventRow key={event.id} event={event} user={id} showSubject />)}</ul>
    </Card>
  );
}

function Why({ id }: { id: string }): JSX.Element {
  return (
    <Card title={`Why didn’t ${id} get it?`}>
      <AskId label="Id of the event" button="Tell me" placeholder="as publishing answered"
        onAsk={(event) => go(to('why', event, { user: id }))} />
    </Card>
  );
}

export function User({ id, rights }: { id: string; rights: Rights }): JSX.Element {
  const { value, error } = useAsked(() => userOf(id), [id], SESSIONS_MS);
  const read = (after: string | null): Promise<{ ids: string[]; next: string | null }> =>
    followingOf(id, after, FOLLOWING).then((page) => ({ ids: page.following, next: page.next }));
  return (
    <>
      <p class="crumb"><a href={to('users')}>Users</a></p>
      <h1><span class="id">{id}</span>{' '}
        {value?.online === true && <Badge tone="good">online</Badge>}
        {value?.online === false && <Badge>offline</Badge>}</h1>
      <p class="crumb">{value !== null && <>follows {count(value.following)}, followed by{' '}
        {count(value.followers)} · </>}<a href={to('subjects', id)}>the same id as a subject</a></p>
      <Problem error={error} />
      <Sessions id={id} key={`s${id}`} rights={rights} />
      <div class="pair">
        <Events id={id} key={`e${id}`} />
        <div>
          <Why id={id} />
          <Ids title="Follows" testid="following" id={id} key={`f${id}`} read={read}
            empty="Nothing, but for what is about itself."
            link={(subject) => <SubjectLink id={subject} />} />
        </div>
      </div>
    </>
  );
}
