// The small parts that pages are made of.

import { Fragment, type ComponentChildren, type JSX } from 'preact';
import { useCallback, useEffect, useId, useRef, useState } from 'preact/hooks';
import { Refused } from './api';
import { to } from './route';

type Children = { children?: ComponentChildren };

export function Card(props: Children & { title: string; note?: ComponentChildren; wide?: boolean;
  testid?: string; tools?: ComponentChildren }): JSX.Element {
  const id = useId();
  return (
    <section class={`card${props.wide ? ' wide' : ''}`} aria-labelledby={id}
      data-testid={props.testid}>
      <header class="card-head">
        <h2 id={id}>{props.title}</h2>
        {props.tools}
      </header>
      {props.note !== undefined && <p class="note">{props.note}</p>}
      {props.children}
    </section>
  );
}

export function Tile(props: { label: string; value: string; sub?: ComponentChildren; href?: string;
  tone?: 'bad' | 'warn' | undefined; testid?: string }): JSX.Element {
  const inside = (
    <>
      <span class="tile-label">{props.label}</span>
      <span class="tile-value">{props.value}</span>
      <span class="tile-sub">{props.sub ?? '\u00a0'}</span>
    </>
  );
  const name = `tile ${props.tone ?? ''}`;
  return props.href === undefined
    ? <div class={name} data-testid={props.testid}>{inside}</div>
    : <a class={name} href={props.href} data-testid={props.testid}>{inside}</a>;
}

export function Badge(props: Children & { tone?: 'good' | 'warn' | 'bad' | 'plain' }): JSX.Element {
  return <span class={`badge ${props.tone ?? 'plain'}`}>{props.children}</span>;
}

/** What went wrong, said where it happened. */
export function Problem({ error }: { error: unknown }): JSX.Element | null {
  if (error === null || error === undefined) return null;
  const text = error instanceof Error ? error.message : String(error);
  const scope = error instanceof Refused && error.code === 'scope_missing';
  return (
    <p class="problem" role="alert">
      {text}{scope ? '. Sign in with a key that has it, or make one: ./halley key create.' : ''}
    </p>
  );
}

export function Empty(props: Children): JSX.Element {
  return <p class="empty">{props.children}</p>;
}

export const UserLink = ({ id }: { id: string }): JSX.Element =>
  <a class="id" href={to('users', id)}>{id}</a>;
export const SubjectLink = ({ id }: { id: string }): JSX.Element =>
  <a class="id" href={to('subjects', id)}>{id}</a>;

/** What an event is about, each a link; nothing of a private one. */
export const subjectsOf = (event: { subject?: string; subjects?: string[] }): string[] =>
  event.subjects ?? (event.subject === undefined ? [] : [event.subject]);

export function SubjectLinks({ ids }: { ids: string[] }): JSX.Element {
  return <>{ids.map((id, at) => <Fragment key={id}>{at > 0 && ', '}<SubjectLink id={id} />
  </Fragment>)}</>;
}

/** A table that scrolls inside its card where it is too wide; the first column names the row. One
 * with many columns stacks on a phone: each row a list of names and values; another does there
 * without its spare column. */
export function Table(props: { caption: string; head: string[]; numeric?: number[];
  rows: ComponentChildren[][]; keys?: string[]; stacks?: boolean;
  spare?: number }): JSX.Element {
  const right = (index: number): string => [
    props.numeric?.includes(index) === true ? 'number' : '',
    props.spare === index ? 'spare' : '',
  ].join(' ').trim();
  return (
    <div class={`table${props.stacks === true ? ' stacks' : ''}`} role="region"
      aria-label={props.caption} tabIndex={0}>
      <table>
        <caption class="unseen">{props.caption}</caption>
        <thead>
          <tr>{props.head.map((name, index) =>
            <th scope="col" class={right(index)} key={name}>{name}</th>)}</tr>
        </thead>
        <tbody>
          {props.rows.map((row, at) => (
            <tr key={props.keys?.[at] ?? at}>{row.map((cell, index) => index === 0
              ? <th scope="row" key={index}>{cell}</th>
              : <td class={right(index)} key={index}>
                <span class="name" aria-hidden="true">{props.head[index]}</span>{cell}</td>)}</tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** A field with its label, and one button: how pages ask for an id. */
export function AskId(props: { label: string; button: string; value?: string;
  placeholder?: string; onAsk: (id: string) => void }): JSX.Element {
  const id = useId();
  return (
    <form class="ask" onSubmit={(event) => {
      event.preventDefault();
      const field = event.currentTarget.elements.namedItem('id') as HTMLInputElement;
      if (field.value !== '') props.onAsk(field.value);
    }}>
      <label for={id}>{props.label}</label>
      <div class="row">
        <input id={id} name="id" autocomplete="off" spellcheck={false} maxLength={255}
          defaultValue={props.value} placeholder={props.placeholder} required />
        <button type="submit">{props.button}</button>
      </div>
    </form>
  );
}

/** A question before something that can't be taken back. Escape answers no. */
export function Confirm(props: Children & { title: string; yes: string; onYes: () => void;
  onNo: () => void; disabled?: boolean }): JSX.Element {
  const dialog = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => { dialog.current?.showModal(); }, []);
  return (
    <dialog ref={dialog} aria-labelledby={id} onClose={props.onNo}>
      <h2 id={id}>{props.title}</h2>
      {props.children}
      <div class="row end">
        <button type="button" onClick={props.onNo}>Cancel</button>
        <button type="button" class="danger" disabled={props.disabled === true}
          onClick={props.onYes}>{props.yes}</button>
      </div>
    </dialog>
  );
}

export interface Asked<T> { value: T | null; error: unknown; again: () => void }

/** Asks, and again every so many milliseconds if it should; `deps` say what is asked for. */
export function useAsked<T>(how: () => Promise<T>, deps: unknown[], everyMs?: number): Asked<T> {
  const [value, setValue] = useState<T | null>(null);
  const [error, setError] = useState<unknown>(null);
  const [turn, setTurn] = useState(0);
  const again = useCallback(() => setTurn((n) => n + 1), []);
  useEffect(() => { setValue(null); setError(null); }, deps);
  useEffect(() => {
    let gone = false;
    const run = (): void => {
      if (document.hidden) return;
      how().then(
        (got) => { if (!gone) { setValue(got); setError(null); } },
        (failed: unknown) => { if (!gone) setError(failed); },
      );
    };
    run();
    const timer = everyMs === undefined ? undefined : setInterval(run, everyMs);
    return () => { gone = true; clearInterval(timer); };
  }, [...deps, turn]);
  return { value, error, again };
}
