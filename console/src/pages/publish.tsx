// A test event, with the command that does the same.

import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { publish } from '../api';
import { of } from '../format';
import { to } from '../route';
import { Card, Problem, SubjectLink } from '../ui';

const EXAMPLE = '{"text":"Hello from the console"}';

interface Draft { target: string; isPrivate: boolean; data: string; id: string }

/** The event, or why there is none yet. */
function event(draft: Draft): { event: Record<string, unknown> } | { why: string } {
  let data: unknown;
  try {
    data = JSON.parse(draft.data);
  } catch (error) {
    const reason = error instanceof Error ? error.message : '';
    return { why: `The data is no JSON: ${reason}. A text needs quotes: "hello".` };
  }
  const names = draft.target.split(',').map((name) => name.trim()).filter((name) => name !== '');
  return { event: { ...(draft.isPrivate ? { to: names } : { subject: draft.target }), data,
    ...(draft.id === '' ? {} : { id: draft.id }) } };
}

function command(body: Record<string, unknown>): string {
  const text = JSON.stringify(body).replaceAll("'", String.raw`'\''`);
  return `curl -H "Authorization: Bearer $KEY" -d '${text}' ${location.origin}/v1/events`;
}

export function PublishForm({ subject }: { subject?: string }): JSX.Element {
  const [draft, set] = useState<Draft>({ target: subject ?? '', isPrivate: false, data: EXAMPLE,
    id: '' });
  const [done, setDone] = useState<{ id: string; sessions: number } | null>(null);
  const [error, setError] = useState<unknown>(null);
  const made = event(draft);
  const send = (): void => {
    if ('why' in made) return setError(new Error(made.why));
    setError(null);
    publish(made.event).then(setDone, (failed: unknown) => { setDone(null); setError(failed); });
  };
  const field = (name: keyof Draft) => (change: Event): void => {
    set({ ...draft, [name]: (change.currentTarget as HTMLInputElement).value });
  };
  return (
    <form class="stack" onSubmit={(sent) => { sent.preventDefault(); send(); }}
      data-testid="publish">
      {subject === undefined && <>
        <fieldset class="row">
          <legend>Whom it is for</legend>
          <label><input type="radio" name="whom" checked={!draft.isPrivate}
            onChange={() => set({ ...draft, isPrivate: false })} /> followers of a subject</label>
          <label><input type="radio" name="whom" checked={draft.isPrivate}
            onChange={() => set({ ...draft, isPrivate: true })} /> some users alone</label>
        </fieldset>
        <label>{draft.isPrivate ? 'Users, with commas between' : 'Subject'}
          <input name="target" value={draft.target} onInput={field('target')} required
            autocomplete="off" spellcheck={false} /></label>
      </>}
      <label>Data, as JSON
        <textarea name="data" rows={3} value={draft.data} onInput={field('data')}
          spellcheck={false} /></label>
      <label>Id <span class="quiet">optional: published again under it, it comes once</span>
        <input name="id" value={draft.id} onInput={field('id')} autocomplete="off"
          spellcheck={false} /></label>
      <div class="row"><button type="submit" class="primary">Publish</button></div>
      <Problem error={error} />
      <div role="status" data-testid="published">{done !== null && <p class="good">
        Sent to {of(done.sessions, 'session')} as <a class="id" href={to('why', done.id)}>
          {done.id}</a>.</p>}</div>
      {!('why' in made) && <details><summary>The same by curl</summary>
        <code class="data">{command(made.event)}</code></details>}
    </form>
  );
}

export function Publish(): JSX.Element {
  return (
    <>
      <h1>Publish a test event</h1>
      <Card title="Event" wide note={<>It is an event like any other: it is kept in the history, and
        whoever follows gets it. A subject that nobody follows, such as <SubjectLink id="test" />,
        disturbs nobody.</>}>
        <PublishForm />
      </Card>
    </>
  );
}
