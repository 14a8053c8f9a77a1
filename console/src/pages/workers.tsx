// The workers of the edges, each a thread with connections of its own and a link to the brain.

import type { JSX } from 'preact';
import { bytes, count, span } from '../format';
import type { Live, Worker } from '../live';
import { Badge, Card, Empty, Table } from '../ui';

function State({ worker }: { worker: Worker }): JSX.Element {
  if (worker.behind) return <Badge tone="warn">behind</Badge>;
  if ((worker.waiting ?? 0) > 0) return <Badge tone="warn">admitting</Badge>;
  return <Badge tone="good">linked</Badge>;
}

export function Workers({ live }: { live: Live }): JSX.Element {
  const workers = live.status?.workers ?? [];
  const behind = workers.filter((worker) => worker.behind).length;
  return (
    <>
      <h1>Workers</h1>
      <Card title={`${count(workers.length)} linked`} wide testid="workers"
        note={behind === 0
          ? 'Each holds its connections and takes events from the brain. None is behind.'
          : 'One that is behind gets what it missed from the history when its queue has drained.'}>
        {workers.length === 0
          ? <Empty>No worker is linked: nobody is connected, and nothing is delivered. The log says
              why the edge is not there.</Empty>
          : <Table stacks caption="Workers" numeric={[2, 3, 4, 5, 6]}
              keys={workers.map((worker) => `${worker.edge}-${worker.worker}`)}
              head={['Worker', 'State', 'Connections', 'Sessions', 'In outboxes', 'On the link',
                'Slow clients', 'Linked for']}
              rows={workers.map((worker) => [
                <>{worker.worker} <span class="quiet">edge {worker.edge}</span></>,
                <State worker={worker} />,
                count(worker.connections), count(worker.sessions), bytes(worker.outbox_bytes),
                bytes(worker.queue_bytes), count(worker.slow_consumers_total),
                span((Date.now() - worker.since) / 1000),
              ])} />}
      </Card>
    </>
  );
}
