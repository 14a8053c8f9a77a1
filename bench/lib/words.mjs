// Numbers as the tables show them.

export const median = (values) => {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length / 2;
  return (sorted[Math.ceil(middle) - 1] + sorted[Math.floor(middle)]) / 2;
};
export const whole = (n) => Math.round(n).toLocaleString('en-US');
export const fixed = (n, digits = 2) => n.toFixed(digits);
export const seconds = (ns) => ns / 1e9;

/** The middle and the worst of several rounds; one number where they are the same. */
export const middleAndMost = (values, digits = 2) => {
  const [middle, most] = [fixed(median(values), digits), fixed(Math.max(...values), digits)];
  return middle === most ? middle : `${middle}, at most ${most}`;
};

/** Latencies of several rounds: medians of p50 and p99. */
export const latencies = (windows) => {
  const of = (name) => fixed(median(windows.map((latency) => latency[name])));
  return `${of('p50')} / ${of('p99')} ms`;
};

/** Rows for what must be nothing. */
export const wrongRows = ({ lost, gaps, gaps_told: told, duplicates, order_breaks: breaks }) => [
  ['acknowledged events lost', whole(lost), '0'],
  ['gaps seen, gaps told', `${whole(gaps)}, ${whole(told)}`, '0, 0'],
  ['duplicates, breaks of order', `${whole(duplicates)}, ${whole(breaks)}`, '–, 0'],
];
