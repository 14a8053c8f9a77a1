// "Why didn't U get E?", told from the beginning: what was published, whom it was for, where it is.

import type { ComponentChildren, JSX } from 'preact';
import { traceOf, type Trace } from '../api';
import { day, of, span } from '../format';
import { go, to } from '../route';
import {
  AskId, Card, Problem, SubjectLinks, subjectsOf, useAsked, UserLink,
} from '../ui';
import { StateBadge, transport, waits } from './users';

type Tone = 'good' | 'warn' | 'plain';

function Step(props: { tone: Tone; title: ComponentChildren; children?: ComponentChildren }):
  JSX.Element {
  return (
    <li class={`step ${props.tone}`}>
      <p class="step-title">{props.title}</p>
      {props.children}
    </li>
  );
}

function Published({ trace }: { trace: Trace }): JSX.Element {
  const { event } = trace;
  return (
    <Step tone="good" title={<>Published {day(event.at)}</>}>
      <p>{event.users !== undefined
        ? <>For {of(event.users, 'user')} alone.</>
        : <>About <SubjectLinks ids={subjectsOf(event)} />.</>}
        {event.sessions !== undefined
          && <> It was sent to {of(event.sessions, 'session')} at once.</>}</p>
    </Step>
  );
}

function Meant({ trace }: { trace: Trace }): JSX.Element {
  const { user, followed, event, unfollowed_at: unfollowed } = trace;
  if (!followed) {
    return (
      <Step tone="warn" title={<>Not for <UserLink id={user} /></>}>
        <p>{event.users !== undefined ? 'The publisher named others.'
          : <>{user} did not follow <SubjectLinks ids={subjectsOf(event)} /> then, nor does now, and
            no session of {user} is subscribed there now.</>}</p>
      </Step>
    );
  }
  return (
    <Step tone="good" title={<>For <UserLink id={user} />, among others</>}>
      {event.users === undefined && <p>{subjectsOf(event).includes(user)
        ? 'Every user has what is about itself.'
        : `${user} followed it, or has a session that is subscribed to it.`}
        {unfollowed !== null && <> It was unfollowed after the event, {day(unfollowed)}.</>}</p>}
    </Step>
  );
}

const REASONS: Record<string, string> = {
  closed: 'the client closed it', vanished: 'the client vanished',
  slow_consumer: 'the client was too slow', close_sessions: 'it was closed by a server',
  edge_stops: 'its edge stopped', broke_protocol: 'the client broke the protocol',
  poll_answered: 'a poll was answered', token_expired: 'its token expired' };

function Since({ trace }: { trace: Trace }): JSX.Element | null {
  if (trace.ended.length === 0) return null;
  return (
    <Step tone="plain" title={`Since then, ${of(trace.ended.length, 'session')} ended`}>
      <ul class="bare">{trace.ended.slice(0, 5).map((one) => (
        <li key={one.at}>{day(one.at)}: {REASONS[one.reason] ?? one.reason}, {' '}
          {span((one.at - trace.event.at) / 1000)} after the event</li>
      ))}</ul>
    </Step>
  );
}

/** Where a session began, beside the event. */
const BEGAN: Record<string, string> = {
  before: 'it was there when the event was published',
  cursor_before: 'it came with a cursor from before the event',
  cursor_after: 'its client brought a cursor that already has the event',
  after: 'it began after the event, without a cursor',
  newest: 'it began after the event, with the newest ones',
  subscribed: 'it was subscribed after the event',
  unknown: 'nobody remembers whether it was there when the event was published' };
const MAY_HAVE = ['before', 'cursor_before'];

function Now({ trace }: { trace: Trace }): JSX.Element {
  return (
    <Step tone={trace.answer === 'yes' ? 'good' : 'warn'}
      title={`Now, ${trace.user} has ${of(trace.sessions.length, 'session')}`}>
      <ul class="bare">{trace.sessions.map((one, index) => (
        <li key={index}>{transport(one)} <StateBadge state={one.state} />{' '}
          {BEGAN[one.began ?? 'unknown'] ?? one.began}
          {MAY_HAVE.includes(one.began ?? '') && <>; {one.passed === true
            ? 'the event went out to its worker' : 'its link is behind'}</>};
          {' '}waits: {waits(one)}</li>
      ))}</ul>
    </Step>
  );
}

/** Whether the user got it: the verdict's first words. */
const ANSWER = /^(Yes|No, not yet|No|Not known yet|Not known): (.)(.*)$/s;

function Verdict({ trace }: { trace: Trace }): JSX.Element {
  const text = trace.verdict;
  const [, answer = '', first = '', rest = ''] = ANSWER.exec(text) ?? [];
  const tone = trace.answer === 'yes' ? 'good' : 'warn';
  return (
    <p class={`verdict ${tone}`} data-testid="verdict">
      {answer === '' ? text
        : <><strong class="answer">{answer}.</strong> {first.toUpperCase()}{rest}</>}
    </p>
  );
}

function Story({ trace }: { trace: Trace }): JSX.Element {
  return (
    <>
      <Verdict trace={trace} />
      <Card title="How it went" wide testid="story">
        <ol class="story">
          <Published trace={trace} />
          <Meant trace={trace} />
          {trace.followed && <Since trace={trace} />}
          {trace.followed && <Now trace={trace} />}
        </ol>
      </Card>
    </>
  );
}

function Traced({ event, user }: { event: string; user: string }): JSX.Element {
  const { value, error } = useAsked(() => traceOf(event, user), [event, user]);
  return (
    <>
      <Problem error={error} />
      {value !== null && <Story trace={value} />}
    </>
  );
}

export function Why({ id, user }: { id: string | null; user: string | null }): JSX.Element {
  return (
    <>
      <p class="crumb"><a href={to('users')}>Users</a>
        {user !== null && <> / <UserLink id={user} /></>}</p>
      <h1>{user !== null && id !== null ? `Did ${user} get it?` : 'Who got it?'}</h1>
      {id !== null && <p class="crumb">Event <code class="id">{id}</code></p>}
      {id !== null && user !== null && <Traced event={id} user={user} />}
      {id !== null && <AskId label={user === null ? 'A user' : 'Another user'} button="Tell me"
        onAsk={(of) => go(to('why', id, { user: of }))} />}
    </>
  );
}
