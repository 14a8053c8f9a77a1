// From observations with a PostgreSQL to the promises that don't hold. Pure.

const counted = (items) => {
  const counts = new Map();
  for (const item of items) counts.set(item, (counts.get(item) ?? 0) + 1);
  return counts;
};

/** Names of one application come in its own order. */
function outOfOrder(ids) {
  const last = new Map();
  return ids.filter((id) => {
    const [name, number] = [id.slice(0, id.lastIndexOf('-')), Number(id.split('-').at(-1))];
    const isLate = number < (last.get(name) ?? 0);
    last.set(name, Math.max(number, last.get(name) ?? 0));
    return isLate;
  });
}

/** What may be on its way to a client when the brain is killed. */
const IN_FLIGHT_MAX = 1_000;

/**
 * Ids that came a second time. An event is sent before it is on disk: a brain that is killed in
 * between publishes it again, and a client may get it again under its id (delivery.md). `kills`:
 * how much the client had when a brain was killed.
 */
export function again(seen, kills) {
  const first = new Map();
  const [excused, wrong] = [[], []];
  seen.forEach((id, at) => {
    const before = first.get(id);
    if (before === undefined) {
      first.set(id, at);
      return;
    }
    const isExcused = kills.some((kill) =>
      kill <= at && Math.abs(before - kill) <= IN_FLIGHT_MAX);
    (isExcused ? excused : wrong).push(id);
  });
  return { excused, wrong };
}

const twice = (ids) => [...counted(ids)].filter(([, n]) => n > 1).map(([id]) => id);

/**
 * `written`: ids of the events whose transactions are committed; `events`: those in the history,
 * the oldest first; `seen`: what the client got, in order, with `kills` and `gaps`; `table` and
 * `graph`: pairs; `wanted`: pairs that the API has acknowledged, followed or not; `rejected`: rows
 * of that table. One line for each that is broken.
 */
export function verdict({ written, events, seen, kills, gaps, table, graph, wanted, rejected }) {
  const [committed, kept, live] = [new Set(written), new Set(events), new Set(seen)];
  const [rows, follows] = [new Set(table), new Set(graph)];
  return Object.entries({
    'committed, not in the history': written.filter((id) => !kept.has(id)),
    'in the history, not committed': events.filter((id) => !committed.has(id)),
    'in the history twice': twice(events),
    'in the history out of order': outOfOrder(events),
    'committed, not with the client': written.filter((id) => !live.has(id)),
    'with the client, not committed': seen.filter((id) => !committed.has(id)),
    'with the client twice': again(seen, kills).wrong,
    'gaps with the client': gaps === 0 ? [] : [gaps],
    'in the table, not followed': table.filter((pair) => !follows.has(pair)),
    'followed, not in the table': graph.filter((pair) => !rows.has(pair)),
    'acknowledged, and the table is otherwise': [...wanted]
      .filter(([pair, isFollowed]) => rows.has(pair) !== isFollowed).map(([pair]) => pair),
    rejected,
  }).filter(([, wrong]) => wrong.length > 0)
    .map(([what, wrong]) => `${what}: ${wrong.slice(0, 5).join(', ')} (${wrong.length})`);
}
