// The busiest subjects, and one of them: its followers, and what was published about it.

import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import {
  eventsOf, followersOf, top, type Busy, type Event, type Rights, type Top,
} from '../api';
import { ago, count, day, exact, rate, span } from '../format';
import { go, to } from '../route';
import {
  AskId, Badge, Card, Empty, Problem, SubjectLink, SubjectLinks, subjectsOf, Table, useAsked,
  UserLink,
} from '../ui';
import { PublishForm } from './publish';

const TOP_MS = 2000;
const EVENTS_MS = 2000;
const LISTED = 10;
const EVENTS = 20;
const FOLLOWERS = 50;

function Busiest(props: { title: string; note: string; busy: Busy[]; overMs: number;
  by: 'events' | 'sessions'; testid: string }): JSX.Element {
  const [all, setAll] = useState(false);
  const perS = (n: number): string => rate(n * 1000 / Math.max(1000, props.overMs));
  const shown = props.busy.slice(0, all ? undefined : LISTED);
  const most = Math.max(1, ...props.busy.map((one) => one[props.by]));
  return (
    <Card title={props.title} note={props.note} testid={props.testid}>
      {shown.length === 0
        ? <Empty>Nothing was published in the last {span(Math.max(1, props.overMs / 1000))}.</Empty>
        : <Table caption={props.title} numeric={[1, 2, 3]} spare={props.by === 'events' ? 3 : 1}
            keys={shown.map((one) => one.subject)}
            head={['Subject', 'Events/s', 'Deliveries/s', 'Fan-out']}
            rows={shown.map((one) => [
              <span class="weighed"><span class="weight" aria-hidden="true"
                style={{ width: `${100 * one[props.by] / most}%` }} />
                <SubjectLink id={one.subject} /></span>,
              perS(one.events), perS(one.sessions),
              one.events === 0 ? '–' : count(Math.round(one.sessions / one.events)),
            ])} />}
      {props.busy.length > LISTED && <button type="button" class="quiet-button"
        onClick={() => setAll(!all)}>
        {all ? 'Show fewer' : `Show all ${props.busy.length}`}</button>}
    </Card>
  );
}

function about(found: Top): string {
  const counted = span(Math.max(1, found.over_ms / 1000));
  const over = `Counted over the last ${counted}, while this page is open.`;
  return found.missed === 0 ? over
    : `${over} There are very many subjects: a count may be ${exact(found.missed)} too low.`;
}

export function Subjects(): JSX.Element {
  const { value, error } = useAsked(top, [], TOP_MS);
  return (
    <>
      <h1>Subjects</h1>
      <AskId label="Look at a subject" button="Show" placeholder="such as room/7"
        onAsk={(id) => go(to('subjects', id))} />
      <Problem error={error} />
      {value !== null && <div class="pair">
        <Busiest title="By events" note={about(value)} busy={value.by_events} by="events"
          overMs={value.over_ms} testid="top-events" />
        <Busiest title="By fan-out" note="Subjects whose events go to the most sessions in all."
          busy={value.by_sessions} by="sessions" overMs={value.over_ms} testid="top-sessions" />
      </div>}
    </>
  );
}

export function EventRow(props: { event: Event; user?: string; showSubject?: boolean }):
  JSX.Element {
  const { event, user } = props;
  const text = JSON.stringify(event.data);
  return (
    <li data-testid="event">
      <div class="row spread">
        <span>{props.showSubject === true && <>
            <SubjectLinks ids={subjectsOf(event)} />{' '}</>}
          <code class="id">{event.id}</code>{' '}
          <time dateTime={new Date(event.at).toISOString()} title={day(event.at)}>
            {ago(event.at)}</time></span>
        <a class="small" href={to('why', event.id, user === undefined ? undefined : { user })}>
          {user === undefined ? 'Who got it?' : `Did ${user} get it?`}</a>
      </div>
      <code class="data">{text.length > 300 ? `${text.slice(0, 300)}…` : text}</code>
    </li>
  );
}

function Events({ id }: { id: string }): JSX.Element {
  const [older, setOlder] = useState<Event[]>([]);
  const [next, setNext] = useState<string | null | undefined>(undefined);
  const [error, setError] = useState<unknown>(null);
  const newest = useAsked(() => eventsOf(id, null, EVENTS), [id], EVENTS_MS);
  const first = newest.value?.events ?? [];
  const from = next === undefined ? newest.value?.next : next;
  const known = new Set(first.map((event) => event.id));
  const events = [...first, ...older.filter((event) => !known.has(event.id))];
  const more = (): void => {
    if (from === null || from === undefined) return;
    eventsOf(id, from, EVENTS).then((page) => {
      // What has left the newest page meanwhile is kept, so that no event is missing between.
      setOlder([...(older.length === 0 ? first : older), ...page.events]);
      setNext(page.next);
    }, setError);
  };
  return (
    <Card title="Recent events" testid="events" note="The newest first, as followers saw them.">
      <Problem error={newest.error ?? error} />
      {newest.value !== null && events.length === 0
        && <Empty>Nothing within history.retention.</Empty>}
      <ul class="events">{events.map((event) => <EventRow event={event} key={event.id} />)}</ul>
      {from !== null && from !== undefined
        && <button type="button" class="quiet-button" onClick={more}>Older events</button>}
    </Card>
  );
}

/** Pages of ids, each behind the last; `read` gives one. */
export function Ids(props: { title: string; empty: string; testid: string; id: string;
  read: (after: string | null) => Promise<{ ids: string[]; next: string | null }>;
  link: (id: string) => JSX.Element }): JSX.Element {
  const first = useAsked(() => props.read(null), [props.id]);
  const [more, setMore] = useState<{ ids: string[]; next: string | null } | null>(null);
  const [error, setError] = useState<unknown>(null);
  const ids = [...(first.value?.ids ?? []), ...(more?.ids ?? [])];
  const next = more === null ? first.value?.next : more.next;
  const further = (): void => {
    props.read(next ?? null).then((page) => {
      setMore({ ids: [...(more?.ids ?? []), ...page.ids], next: page.next });
    }, setError);
  };
  return (
    <Card title={props.title} testid={props.testid}>
      <Problem error={first.error ?? error} />
      {first.value !== null && ids.length === 0 && <Empty>{props.empty}</Empty>}
      <ul class="ids">{ids.map((id) => <li key={id}>{props.link(id)}</li>)}</ul>
      {next !== null && next !== undefined
        && <button type="button" class="quiet-button" onClick={further}>More</button>}
    </Card>
  );
}

export function Subject({ id, rights }: { id: string; rights: Rights }): JSX.Element {
  const read = (after: string | null): Promise<{ ids: string[]; next: string | null }> =>
    followersOf(id, after, FOLLOWERS).then((page) => ({ ids: page.followers, next: page.next }));
  return (
    <>
      <p class="crumb"><a href={to('subjects')}>Subjects</a></p>
      <h1><span class="id">{id}</span> <Badge>subject</Badge></h1>
      <p class="crumb"><a href={to('users', id)}>The same id as a user</a></p>
      <div class="pair">
        <Events id={id} key={id} />
        <div>
          <Ids title="Followers" testid="followers" id={id} key={id} read={read}
            empty="Nobody follows it. A user always has what is about itself."
            link={(user) => <UserLink id={user} />} />
          {rights.scopes.includes('publish') && <Card title="Publish a test event">
            <PublishForm subject={id} /></Card>}
        </div>
      </div>
    </>
  );
}
