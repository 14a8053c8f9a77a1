// Whatever was refused, by reason, with what it means and what to do.

import type { JSX } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import { count, span } from '../format';
import type { Live } from '../live';
import { GROUPS, told, type Group, type Refusal } from '../refusals';
import { to } from '../route';
import { Card, Empty } from '../ui';

/** Of a group with more rows none is open from the beginning. */
const OPEN_MAX = 3;

interface Told { refusal: Refusal; total: number; lately: number }

/** One of them; `named` is the one that the address names: open, and in sight. */
function Row({ one, open, named }: { one: Told; open: boolean; named: boolean }): JSX.Element {
  const { refusal } = one;
  const row = useRef<HTMLDetailsElement>(null);
  useEffect(() => {
    if (!named) return;
    // Behind the frame, which begins a new page at its top.
    requestAnimationFrame(() => row.current?.scrollIntoView({ block: 'center' }));
  }, [named]);
  return (
    <details ref={row} open={open || named} class={named ? 'named' : ''} data-testid="refusal">
      <summary>
        <span class="refusal">{refusal.title}</span>
        <span class="numbers"><strong>{count(one.lately)}</strong>
          <span class="quiet"> lately, {count(one.total)} in all</span></span>
      </summary>
      <dl class="told">
        <dt>What it means</dt><dd>{refusal.means}</dd>
        <dt>What to do</dt><dd>{refusal.todo}</dd>
        <dt>Metric</dt><dd><a href={to('refusals', refusal.metric)}
          title="An address to send to somebody"><code>{refusal.metric}</code></a></dd>
      </dl>
    </details>
  );
}

function Rows({ group, all, named }: { group: Group; all: Told[]; named: string | null }):
  JSX.Element | null {
  const rows = all.filter((one) => group.refusals.includes(one.refusal));
  if (rows.length === 0) return null;
  return (
    <Card title={group.title} wide>
      {rows.map((one) => <Row key={one.refusal.metric} one={one}
        named={one.refusal.metric === named}
        open={one.lately > 0 && rows.length <= OPEN_MAX} />)}
    </Card>
  );
}

export function Refusals({ live, id }: { live: Live; id: string | null }): JSX.Element {
  const all = told(live.status?.counted);
  const counted = all.filter((one) => one.total > 0);
  const none = all.filter((one) => one.total === 0);
  const over = live.status === null ? '' : span((Date.now() - live.status.since) / 1000);
  return (
    <>
      <h1>Refusals</h1>
      <p class="lead">What was refused, closed or dropped since the server began, and in the
        last {over}. Each says what it means and what to do.</p>
      {live.status !== null && counted.length === 0
        && <Card title="None" wide><Empty>Nothing was ever refused here.</Empty></Card>}
      {GROUPS.map((group) =>
        <Rows key={group.title} group={group} all={counted} named={id} />)}
      <details class="others" open={none.some((one) => one.refusal.metric === id)}>
        <summary>{count(none.length)} reasons that never came up</summary>
        {GROUPS.map((group) => <Rows key={group.title} group={group} all={none} named={id} />)}
      </details>
    </>
  );
}
