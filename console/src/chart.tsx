// Time series by uPlot, in the page's colours. What a chart shows is told in words as well.

import type { JSX } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';
import { useColours } from './theme';
import { Card } from './ui';

export interface Line { label: string; colour: string; values: (number | null)[]; fill?: boolean }

const HEIGHT = 172;
/** What the axis spans: what is known, within these. */
const SPAN_S = { min: 60, max: 600 };
const AXIS_SPACE = 56;
/** What the numbers at the side may go up by. All are of whole things, and their labels are
 * rounded: in halves they would say 0, 1, 1, and in steps of 2.5 that 3 is half of 5. */
const INCREMENTS = Array.from({ length: 13 }, (_, power) => [1, 2, 5].map((n) => n * 10 ** power))
  .flat();

function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function options(width: number, lines: Line[], unit: (n: number) => string): uPlot.Options {
  const quiet = colour('--quiet');
  const axis = { stroke: quiet, font: '12px system-ui, sans-serif', ticks: { show: false },
    grid: { stroke: colour('--line'), width: 1 } };
  return {
    width, height: HEIGHT, legend: { show: false }, cursor: { y: false, points: { size: 6 } },
    scales: {
      x: { time: true },
      y: { range: (_, _min, max) => [0, Math.max(max ?? 0, 1) * 1.08] },
    },
    series: [{}, ...lines.map((line) => ({
      label: line.label, stroke: colour(line.colour), width: 1.75, spanGaps: false,
      points: { show: false },
      ...(line.fill ? { fill: `color-mix(in srgb, ${colour(line.colour)} 16%, transparent)` } : {}),
    }))],
    axes: [
      { ...axis, size: 32, gap: 9, space: 70,
        values: (_, ticks, _axis, _space, step) => ticks.map((s) =>
          new Date(s * 1000).toTimeString().slice(0, step < 60 ? 8 : 5)) },
      { ...axis, size: AXIS_SPACE, space: 34, incrs: INCREMENTS,
        values: (_, ticks) => ticks.map(unit) },
    ],
  };
}

/** What is known of the last ten minutes; of the last one, if that is all. */
function padded(at: number[], lines: Line[]): uPlot.AlignedData {
  const last = at.at(-1) ?? 0;
  const span = Math.min(Math.max(last - (at[0] ?? last), SPAN_S.min), SPAN_S.max);
  const kept = at.filter((s) => s > last - span);
  return [[last - span, ...kept],
    ...lines.map((line) => [null, ...line.values.slice(at.length - kept.length)]),
  ] as uPlot.AlignedData;
}

export function Chart(props: { title: string; at: number[]; lines: Line[];
  unit: (n: number) => string; now: string }): JSX.Element {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const theme = useColours();
  const data = useRef<uPlot.AlignedData>([[]]);
  data.current = padded(props.at, props.lines);
  useEffect(() => {
    const { current } = box;
    if (current === null) return undefined;
    const made = new uPlot(options(current.clientWidth, props.lines, props.unit), data.current,
      current);
    plot.current = made;
    const sized = new ResizeObserver(() => {
      made.setSize({ width: current.clientWidth, height: HEIGHT });
    });
    sized.observe(current);
    return () => { sized.disconnect(); made.destroy(); plot.current = null; };
  }, [theme, props.lines.length]);
  useEffect(() => plot.current?.setData(data.current), [props.at]);
  return (
    <Card title={props.title} tools={props.lines.length > 1 && <span class="keys">
      {props.lines.map((line) => (
        <span key={line.label}>
          <span class="dot" style={{ background: `var(${line.colour})` }} aria-hidden="true" />
          {line.label}
        </span>
      ))}</span>}>
      <div class="chart" ref={box} role="img"
        aria-label={`${props.title}, the last ten minutes at most. ${props.now}`} />
    </Card>
  );
}
