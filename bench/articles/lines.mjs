// Lines over axes from zero, as one SVG: memory over connections, and over minutes. Pure: numbers
// in, text out.

const [WIDTH, HEIGHT] = [720, 360];
const [LEFT, RIGHT, TOP, BOTTOM] = [64, 190, 40, 44];
const TICKS = 5;
const COLOURS = ['#8e44ad', '#c0392b', '#d9a77d', '#2e86c1', '#27ae60'];

const STYLE = `
  text { font: 12px system-ui, sans-serif; fill: #222 } .title { font-weight: 600; font-size: 13px }
  .axis { stroke: #999 } .line { fill: none; stroke-width: 2 } rect.back { fill: #fff }
  @media (prefers-color-scheme: dark) { text { fill: #ddd } rect.back { fill: #1a1a1a } }`;

const escape = (text) => `${text}`.replace(/[&<>"]/g,
  (character) => `&#${character.codePointAt(0)};`);

const STEPS = [1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10];
/** Above the last tick by less than this, a line may end beyond it. */
const TOLERANCE = 0.98;

/** The next of the steps, times a power of ten. */
function round(value) {
  const least = Math.max(value * TOLERANCE, 1e-9);
  const power = 10 ** Math.floor(Math.log10(least));
  return STEPS.find((step) => step * power >= least) * power;
}

const shown = (number) => number.toLocaleString('en', { maximumFractionDigits: 2 });

/** `series`: `{title, points: [[x, y]]}`; gives the SVG's text. */
export function lines(heading, xTitle, yTitle, series) {
  const all = series.flatMap(({ points }) => points);
  const [xMost, yMost] = [0, 1].map((axis) => round(Math.max(...all.map((point) => point[axis]))));
  const x = (value) => LEFT + (value / xMost) * (WIDTH - LEFT - RIGHT);
  const y = (value) => HEIGHT - BOTTOM - (value / yMost) * (HEIGHT - TOP - BOTTOM);
  const ticks = Array.from({ length: TICKS + 1 }, (_, n) => n / TICKS);
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${HEIGHT}" role="img">`,
    `<title>${escape(heading)}</title><style>${STYLE}</style>`,
    `<rect class="back" width="${WIDTH}" height="${HEIGHT}"/>`,
    `<text class="title" x="${LEFT}" y="20">${escape(heading)}</text>`,
    `<path class="axis" fill="none" d="M${LEFT} ${TOP}V${HEIGHT - BOTTOM}H${WIDTH - RIGHT}"/>`,
    ...ticks.map((share) => `<text text-anchor="middle" x="${x(share * xMost)}" y="${
      HEIGHT - BOTTOM + 16}">${shown(share * xMost)}</text>`),
    ...ticks.map((share) => `<text text-anchor="end" x="${LEFT - 6}" y="${
      y(share * yMost) + 4}">${shown(share * yMost)}</text>`),
    `<text text-anchor="middle" x="${(LEFT + WIDTH - RIGHT) / 2}" y="${HEIGHT - 8}">${
      escape(xTitle)}</text>`,
    `<text x="8" y="34">${escape(yTitle)}</text>`,
    ...series.flatMap(({ title, points }, n) => {
      const path = points.map(([px, py]) => `${x(px).toFixed(1)} ${y(py).toFixed(1)}`).join('L');
      return [`<path class="line" stroke="${COLOURS[n % COLOURS.length]}" d="M${path}"/>`,
        `<rect x="${WIDTH - RIGHT + 12}" y="${TOP + 20 * n}" width="12" height="4" fill="${
          COLOURS[n % COLOURS.length]}"/>`,
        `<text x="${WIDTH - RIGHT + 30}" y="${TOP + 20 * n + 7}">${escape(title)}</text>`];
    }),
    '</svg>', '',
  ].join('\n');
}
