// Circles of a graph. A graph is a `Map` of each node to the edges that leave it, `{module}` being
// where an edge leads.

/** The nodes that can be reached from each other with this one, itself included. */
function together(graph, node) {
  const from = reachable(graph, node);
  return [...from].filter((other) => reachable(graph, other).has(node));
}

/** All nodes that edges lead to from here, over others as well. */
function reachable(graph, node) {
  const found = new Set();
  const open = [node];
  while (open.length > 0) {
    for (const { module } of graph.get(open.pop())) {
      if (!found.has(module)) {
        found.add(module);
        open.push(module);
      }
    }
  }
  return found;
}

/** The shortest way from a node back to itself. */
function shortest(graph, node) {
  const before = new Map();
  for (const at of walk(graph, node, before)) {
    if (at !== node) continue;
    const way = [node];
    for (let step = before.get(node); step !== node; step = before.get(step)) way.unshift(step);
    return [way.pop(), ...way];
  }
  return [];
}

/** Nodes by their distance; `before` learns by which one each is reached. */
function* walk(graph, node, before) {
  const open = [node];
  while (open.length > 0) {
    const at = open.shift();
    for (const { module } of graph.get(at)) {
      if (before.has(module)) continue;
      before.set(module, at);
      open.push(module);
      yield module;
    }
  }
}

/** The sets of several nodes that reach each other, each in the order of names. */
export function componentsOf(graph) {
  const [seen, sets] = [new Set(), []];
  for (const node of [...graph.keys()].sort()) {
    if (seen.has(node)) continue;
    const nodes = together(graph, node).sort();
    nodes.forEach((other) => seen.add(other));
    if (nodes.length > 1) sets.push(nodes);
  }
  return sets;
}

/**
 * One circle for each set of nodes that reach each other, a shortest one through the first of them
 * by name. No edge leads from a node to itself.
 */
export function circlesOf(graph) {
  const seen = new Set();
  const circles = [];
  for (const node of [...graph.keys()].sort()) {
    if (seen.has(node)) continue;
    const nodes = together(graph, node);
    nodes.forEach((other) => seen.add(other));
    if (nodes.length > 1) circles.push(shortest(graph, node));
  }
  return circles;
}
