// The first view: is it well, how much goes through, and what was refused.

import type { JSX } from 'preact';
import { Chart } from '../chart';
import { bytes, count, of, rate, span } from '../format';
import type { Live, Status } from '../live';
import { told } from '../refusals';
import { to } from '../route';
import { agesOver, below, percentile, type Point } from '../series';
import { Card, Tile } from '../ui';

const MINUTE = 60;
/** Below it the memory of the programs themselves says nothing about a connection. */
const CONNECTIONS_MIN = 1000;

const mean = (points: Point[], of: (point: Point) => number | null): number | null => {
  const known = points.map(of).filter((n) => n !== null);
  return known.length === 0 ? null : known.reduce((sum, n) => sum + n, 0) / known.length;
};

function Tiles({ live }: { live: Live }): JSX.Element {
  const { points, samples, columns, status } = live;
  const now = points.at(-1);
  const minute = columns === null ? [] : agesOver(columns, samples.slice(-MINUTE - 1));
  const lately = told(status?.counted).reduce((sum, one) => sum + one.lately, 0);
  const slow = (status?.counted['halley_edge_slow_consumers_total'] ?? [0, 0])[1];
  const over = status === null ? '' : `in ${span((Date.now() - status.since) / 1000)}`;
  const last = points.slice(-5);
  return (
    <div class="tiles">
      <Tile label="Connections" testid="tile-connections" value={count(now?.connections)}
        href={to('workers')} sub={now === undefined ? undefined
          : `${of(now.users, 'user')} online`} />
      <Tile label="Events/s" testid="tile-events"
        value={rate(mean(last, (p) => p.events))} sub="published" href={to('subjects')} />
      <Tile label="Deliveries/s" testid="tile-deliveries"
        value={rate(mean(last, (p) => p.deliveries))} sub="sent to sessions" />
      <Tile label="Latency, p99" testid="tile-latency" value={below(percentile(minute, 0.99))}
        sub={`p50 ${below(percentile(minute, 0.5))}`} />
      <Tile label="Slow clients closed" testid="tile-slow" value={count(slow)} sub={over}
        href={to('users')} tone={slow > 0 ? 'warn' : undefined} />
      <Tile label="Refused" testid="tile-refused" value={count(lately)} sub={over}
        href={to('refusals')} tone={lately > 0 ? 'warn' : undefined} />
    </div>
  );
}

function Charts({ points }: { points: Point[] }): JSX.Element {
  const at = points.map((point) => point.at / 1000);
  const now = points.at(-1);
  const late = (ms: number | null): number | null => ms === null ? null : Math.min(ms, 2000);
  return (
    <div class="charts">
      <Chart title="Deliveries per second" at={at} unit={count}
        now={`Now ${rate(now?.deliveries)}.`}
        lines={[{ label: 'deliveries/s', colour: '--one', fill: true,
          values: points.map((p) => p.deliveries) }]} />
      <Chart title="Events per second" at={at} unit={count} now={`Now ${rate(now?.events)}.`}
        lines={[{ label: 'events/s', colour: '--two', fill: true,
          values: points.map((p) => p.events) }]} />
      <Chart title="Latency, from publish to socket" at={at} unit={(n) => `${n} ms`}
        now={`Now p50 ${below(now?.p50 ?? null)}, p99 ${below(now?.p99 ?? null)}.`}
        lines={[
          { label: 'p50 below', colour: '--one', values: points.map((p) => late(p.p50)) },
          { label: 'p99 below', colour: '--three', values: points.map((p) => late(p.p99)) },
        ]} />
      <Chart title="Connections" at={at} unit={count} now={`Now ${count(now?.connections)}.`}
        lines={[{ label: 'open now', colour: '--two', fill: true,
          values: points.map((p) => p.connections) }]} />
    </div>
  );
}

interface Part { name: string; bytes: number; each: string | null; colour: string; what: string }

function parts(status: Status, now: Point): Part[] {
  const erlang = (kind: string): number => status.erlang_bytes[kind] ?? 0;
  const tables = erlang('ets');
  const work = erlang('processes') + erlang('binary');
  const part = (name: string, n: number, colour: string, what: string): Part => ({ name, bytes: n,
    each: now.connections < CONNECTIONS_MIN ? null : bytes(n / now.connections), colour, what });
  return [
    part('Edge', now.edge, '--one', 'connections, and what waits for slow clients'),
    part('Brain: tables', tables, '--two', 'ids, follows, what is remembered'),
    part('Brain: work', work, '--four', 'processes, and events on their way'),
    part('Brain: the rest', Math.max(0, now.brain - tables - work), '--three',
      'code, indexes, what the allocator keeps'),
  ];
}

function Memory({ status, now }: { status: Status; now: Point }): JSX.Element {
  const all = parts(status, now);
  const sum = all.reduce((total, part) => total + part.bytes, 0);
  return (
    <Card title="Memory by part" testid="memory" wide
      note={now.connections < CONNECTIONS_MIN
        ? `Resident bytes. From ${count(CONNECTIONS_MIN)} connections on, bytes per connection are `
          + 'told as well; below, the programs themselves are most of it.'
        : 'Resident bytes, and what that is for each connection. The kernel has 3 to 4 KB more for '
          + 'each socket.'}>
      <div class="bar" aria-hidden="true">{all.map((part) => (
        <span key={part.name} style={{ flexGrow: part.bytes / Math.max(1, sum),
          background: `var(${part.colour})` }} />
      ))}</div>
      <dl class="parts">{all.map((part) => (
        <div key={part.name}>
          <dt><span class="dot" style={{ background: `var(${part.colour})` }} aria-hidden="true" />
            {part.name}</dt>
          <dd><strong>{bytes(part.bytes)}</strong>
            {part.each !== null && <span> · {part.each} per connection</span>}
            <span class="quiet">{part.what}</span></dd>
        </div>
      ))}</dl>
    </Card>
  );
}

export function Overview({ live }: { live: Live }): JSX.Element {
  const now = live.points.at(-1);
  return (
    <>
      <h1 class="unseen">Overview</h1>
      <Tiles live={live} />
      <Charts points={live.points} />
      {live.status !== null && now !== undefined && <Memory status={live.status} now={now} />}
    </>
  );
}
