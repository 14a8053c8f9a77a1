// Small multiples of horizontal bars as one SVG: a panel for each figure, a bar for each setting, a
// dot for each round, so that what is noise shows as such; a ring for one beyond the edge. Pure:
// numbers in, text out.

const WIDTH = 420;
const LABEL = 110;
const VALUE = 70;
const ROW = 22;
const HEAD = 54;
const GAP = 24;
const COLUMNS = 2;
const DOT_RADIUS = 2.5;
/** What a panel shows beyond its longest bar, so that one bad round doesn't flatten the others. */
const SPARE = 1.15;

const STYLE = `
  text { font: 12px system-ui, sans-serif; fill: #222 }
  .title { font-weight: 600; font-size: 13px }
  .note { fill: #666; font-size: 11px }
  .bar { fill: #7da7d9 } .bar.low { fill: #d9a77d }
  .dot { fill: #123; fill-opacity: .75 }
  .beyond { fill: none; stroke: #123 }
  rect.back { fill: #fff }
  @media (prefers-color-scheme: dark) {
    text { fill: #ddd } .note { fill: #999 } .dot { fill: #fff }
    .beyond { fill: none; stroke: #fff } rect.back { fill: #1a1a1a }
  }`;

const escape = (text) => `${text}`.replace(/[&<>"]/g,
  (character) => `&#${character.codePointAt(0)};`);

/**
 * `panels`: `{title, note, lower, bars: [{label, value, rounds, text}]}`; `lower` where less is
 * better. Gives the SVG's text.
 */
export function bars(heading, panels) {
  const height = Math.max(...panels.map(({ bars: rows }) => HEAD + rows.length * ROW));
  const lines = Math.ceil(panels.length / COLUMNS);
  const [width, total] = [COLUMNS * (WIDTH + GAP) + GAP, 40 + lines * (height + GAP)];
  const body = panels.map((panel, i) => {
    const [x, y] = [GAP + (i % COLUMNS) * (WIDTH + GAP),
      40 + Math.floor(i / COLUMNS) * (height + GAP)];
    return `<g transform="translate(${x} ${y})">${panelOf(panel)}</g>`;
  });
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${total}" role="img">`,
    `<title>${escape(heading)}</title><style>${STYLE}</style>`,
    `<rect class="back" width="${width}" height="${total}"/>`,
    `<text class="title" x="${GAP}" y="24">${escape(heading)}</text>`,
    ...body,
    '</svg>',
    '',
  ].join('\n');
}

function panelOf({ title, note, lower, bars: rows }) {
  const most = Math.max(...rows.map(({ value }) => value * SPARE), 1e-9);
  const scale = (value) => (Math.min(value, most) / most) * (WIDTH - LABEL - VALUE);
  return [
    `<text class="title" y="14">${escape(title)}</text>`,
    `<text class="note" y="32">${escape(note)}${lower ? '; less is better' : ''}</text>`,
    ...rows.map(({ label, value, rounds, text }, i) => {
      const y = HEAD + i * ROW - 10;
      const dots = rounds.map((round) => `<circle class="${round > most ? 'beyond' : 'dot'}" `
        + `r="${DOT_RADIUS}" cx="${(LABEL + scale(round)).toFixed(1)}" cy="${y + ROW / 2 - 2}"/>`);
      return `<text y="${y + 13}">${escape(label)}</text>`
        + `<rect class="bar${lower ? ' low' : ''}" x="${LABEL}" y="${y}" height="${ROW - 5}" `
        + `width="${scale(value).toFixed(1)}"/>${dots.join('')}`
        + `<text x="${WIDTH - VALUE + 8}" y="${y + 13}">${escape(text)}</text>`;
    }),
  ].join('\n');
}
