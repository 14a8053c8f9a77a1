// A failure as a story: what happened around one (user, event), in order, for people.

const LINES_MAX = 80;
const CONTEXT_ENTRIES = 6;

const interesting = (entry) => entry.type !== 'event';

function entryText(entry) {
  const { t, ms, type, ...rest } = entry;
  return `${type} ${JSON.stringify(rest)}`;
}

/** What matters of a user: connections, gaps, the event itself, its neighbours of the subject. */
function userLines(history, { user, id, subject, t }) {
  const entries = history.users.get(user) ?? [];
  const near = entries.findIndex((entry) => entry.t >= t);
  return entries.filter((entry, index) => entry.id === id
      || (Math.abs(index - near) <= CONTEXT_ENTRIES)
      || (interesting(entry) && Math.abs(entry.t - t) < 20_000)
      || (entry.subject === subject && Math.abs(index - near) <= 4 * CONTEXT_ENTRIES))
    .map((entry) => ({ t: entry.t, ms: entry.ms, text: `${user}: ${entryText(entry)}` }));
}

function eventLines(history, id) {
  const event = history.events.get(id);
  if (!event) return [];
  const { begun, begunMs, acked, ackedMs, unknown, subject, ack } = event;
  const lines = [{ t: begun, ms: begunMs,
    text: `publish ${id} about ${subject} begun (ack: ${ack}), ${unknown} attempts unknown` }];
  if (acked !== null) lines.push({ t: acked, ms: ackedMs, text: `publish ${id} acknowledged` });
  return lines;
}

function faultLines(history, t) {
  return history.faults.flatMap(({ name, begun, begunMs, ended, endedMs, note = '' }) => [
    { t: begun, ms: begunMs, text: `fault ${name} begins ${note}` },
    ...(ended === null ? [] : [{ t: ended, ms: endedMs, text: `fault ${name} ended` }]),
  ]).filter((line) => Math.abs(line.t - t) < 20_000);
}

function followLines(history, user, subject) {
  const operations = history.follows.get(user)?.get(subject) ?? [];
  return operations.flatMap(({ op, begun, acked }) => [
    { t: begun, text: `${user} ${op} ${subject} begun` },
    ...(acked === null ? [] : [{ t: acked, text: `${user} ${op} ${subject} acknowledged` }]),
  ]);
}

const deathLines = (history, names) => names.flatMap((name) =>
  (history.deaths.get(name) ?? []).flatMap(({ begun, acked, ackedMs }) => [
    { t: begun, text: `deletion of ${name} begun` },
    ...(acked === null ? []
      : [{ t: acked, ms: ackedMs, text: `deletion of ${name} acknowledged` }]),
  ]));

/** The lines of a violation's timeline, the nearest ones where there are too many. */
export function timeline(history, violation) {
  const { user, id, subject, t } = violation;
  const lines = [
    ...userLines(history, violation), ...eventLines(history, id), ...faultLines(history, t),
    ...followLines(history, user, subject), ...deathLines(history, [user, subject]),
  ];
  const near = lines.sort((a, b) => Math.abs(a.t - t) - Math.abs(b.t - t)).slice(0, LINES_MAX);
  return near.sort((a, b) => a.t - b.t).map(({ t: tick, ms, text }) => {
    const time = ms === undefined ? '            ' : new Date(ms).toISOString().slice(11, 23);
    return `  ${String(tick).padStart(8)} ${time} ${text}`;
  });
}
