// The model of follows and ids: the right content of a list of followers, or of a user's follows.
//
// Acknowledged follows stand, follows without a request don't, and between a request and its answer
// both are right. Names tell ids apart: an id that got the number of another appears in lists
// without a follow. A pure function, which verdict.test.mjs feeds lies.

/** Does the user follow the subject for the whole of a read from `begun` to `ended`? */
export function standing(history, user, subject, begun, ended) {
  const operations = history.follows.get(user)?.get(subject) ?? [];
  const last = operations.findLast((operation) => operation.begun < ended);
  if (last === undefined) return 'no';
  if (last.acked === null || last.acked > begun) return 'maybe';
  return last.op === 'follow' ? 'yes' : 'no';
}

/** Whether somebody ever asked for this follow. */
function wasAsked(history, user, subject) {
  const operations = history.follows.get(user)?.get(subject) ?? [];
  return operations.some(({ op }) => op === 'follow');
}

/**
 * Judges one list, read over all of its pages: `{list: 'followers' | 'following', name, names,
 * begun, ended}`. Gives violations of the kinds `follow lost`, `follow invented`, `listed twice`;
 * `wasAsked`: the follow stood once, or may have.
 */
export function judgeList(history, { list, name, names, begun, ended }) {
  const told = new Set(names);
  const expected = list === 'followers' ? history.followers.get(name) : history.follows.get(name);
  const found = [];
  const say = (kind, other, text) => {
    const [user, subject] = list === 'followers' ? [other, name] : [name, other];
    found.push({ kind, user, subject, t: begun, text: `${text}, says the list of ${list}`,
      wasAsked: wasAsked(history, user, subject) });
  };
  if (told.size !== names.length) {
    const twice = names.find((other, index) => names.indexOf(other) !== index);
    say('listed twice', twice, 'stands there twice');
  }
  for (const other of new Set([...expected?.keys() ?? [], ...told])) {
    const [user, subject] = list === 'followers' ? [other, name] : [name, other];
    const should = standing(history, user, subject, begun, ended);
    if (should === 'yes' && !told.has(other)) {
      say('follow lost', other, 'acknowledged, and not there');
    } else if (should === 'no' && told.has(other)) {
      const known = history.follows.has(user);
      say('follow invented', other, known ? 'nobody asked for it, or it was taken back'
        : 'a user who never followed anything');
    }
  }
  return found;
}
