// An id, and what has it: a user, a subject, or both. Where one page is meant, it is gone to; where
// that isn't known, both are offered.

import type { JSX } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import { eventsOf, userOf, type User } from '../api';
import { of } from '../format';
import { replace, to } from '../route';
import { Badge, Card, Problem, useAsked } from '../ui';

interface Known { user: User; isUser: boolean; isSubject: boolean }

/** A subject is there when somebody follows it or something was published about it. */
async function lookUp(id: string): Promise<Known> {
  const [user, past] = await Promise.all([userOf(id), eventsOf(id, null, 1)]);
  return {
    user,
    isUser: user.online || user.following > 0,
    isSubject: user.followers > 0 || past.events.length > 0,
  };
}

function Choice({ id, known }: { id: string; known: Known }): JSX.Element {
  const { user, isUser, isSubject } = known;
  const first = useRef<HTMLAnchorElement>(null);
  // Whoever typed the id goes on by Enter.
  useEffect(() => first.current?.focus(), []);
  return (
    <Card title={isUser ? 'A user and a subject have this id' : 'Nothing is known of this id'}
      testid="choice" wide>
      <ul class="choice">
        <li><a ref={first} href={to('users', id)}><span class="quiet">user</span>{' '}
          <span class="id">{id}</span></a>{' '}
          {user.online ? <Badge tone="good">online</Badge> : <Badge>offline</Badge>}{' '}
          <span class="quiet">follows {of(user.following, 'subject')}</span></li>
        <li><a href={to('subjects', id)}><span class="quiet">subject</span>{' '}
          <span class="id">{id}</span></a>{' '}
          <span class="quiet">{isSubject ? `has ${of(user.followers, 'follower')}`
            : 'no follower, no event within history.retention'}</span></li>
      </ul>
    </Card>
  );
}

export function Find({ id }: { id: string }): JSX.Element {
  const { value, error } = useAsked(() => lookUp(id), [id]);
  const isOne = value !== null && value.isUser !== value.isSubject;
  useEffect(() => {
    if (value !== null && isOne) replace(to(value.isUser ? 'users' : 'subjects', id));
  }, [value]);
  return (
    <>
      <h1><span class="id">{id}</span></h1>
      <Problem error={error} />
      {value !== null && !isOne && <Choice id={id} known={value} />}
    </>
  );
}
