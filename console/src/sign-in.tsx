// A server key opens the console. It stays in this tab, and travels as a header alone.

import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { keepKey, rights, type Rights } from './api';
import { Problem } from './ui';

const KEY = /^hk_/;

export function SignIn(props: { said: string | null; onEnter: (rights: Rights) => void }):
  JSX.Element {
  const field = useRef<HTMLInputElement>(null);
  const [error, setError] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  useEffect(() => field.current?.focus(), []);
  const enter = (event: Event): void => {
    event.preventDefault();
    const key = field.current?.value.trim() ?? '';
    if (!KEY.test(key)) {
      return setError(new Error('A server key begins with hk_; it was shown when it was made.'));
    }
    setBusy(true);
    rights(key).then((found) => {
      keepKey(key);
      props.onEnter(found);
    }, (failed: unknown) => { setBusy(false); setError(failed); });
  };
  return (
    <main class="sign-in">
      <form class="card stack" onSubmit={enter} aria-labelledby="sign-in">
        <img src="/console/icon.svg" width="48" height="48" alt="" />
        <h1 id="sign-in">Halley console</h1>
        {props.said !== null && <p class="problem" role="alert">{props.said}</p>}
        <label>Server key
          <input ref={field} name="key" type="password" autocomplete="off" spellcheck={false}
            placeholder="hk_…" required /></label>
        <Problem error={error} />
        <button type="submit" class="primary" disabled={busy}>Sign in</button>
        <details><summary>I have none</summary>
          <p>On the server’s machine:</p>
          <code class="data">./halley key create console{' '}
            <span class="whole">--scope read,publish,admin</span></code>
          <p>With <code>read</code> alone it can look and change nothing.</p></details>
      </form>
    </main>
  );
}
