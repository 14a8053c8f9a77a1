//! One plot: areas on top of each other, or lines, over the time of the run.

use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

use crate::error::{Failure, Result};
use crate::paint::{Hue, Paint, themed};
use crate::record::Mark;
use crate::scale::{Point, Unit, clock, stretches, thin};

const WIDTH: u32 = 960;
const HEIGHT: u32 = 300;
const FONT_PX: i32 = 13;
const MARK_FONT_PX: i32 = 11;
const LABELS_X: usize = 12;
const LABELS_Y: usize = 6;
/// Room over the highest value.
const HEADROOM: f64 = 1.08;
/// A silence that lasts for this part of the run, or so many seconds, cuts a line.
const GAP_SHARE: f64 = 0.01;
const GAP_S_MIN: f64 = 1.6;
/// Between the numbers of two marks; one that is nearer has its line alone.
const NUMBER_PX_MIN: i32 = 15;
/// The lowest latency that is drawn, so that a logarithm has an end.
const LOG_MIN: f64 = 0.1;

/// How series share the plot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// One on top of the other: their sum is the outline.
    Stacked,
    /// Lines from zero.
    Lines,
    /// Lines over a logarithmic axis.
    LogLines,
}

/// One curve.
#[derive(Debug)]
pub struct Series {
    /// For the legend.
    pub label: String,
    /// Its colour.
    pub hue: Hue,
    /// In the order of time.
    pub points: Vec<Point>,
}

/// What to draw.
#[derive(Debug)]
pub struct Chart {
    /// The heading.
    pub title: &'static str,
    /// What a reader should know to read it.
    pub note: String,
    /// How.
    pub shape: Shape,
    /// What the values are.
    pub unit: Unit,
    /// Of a stack the lowest first; all have the same times then.
    pub series: Vec<Series>,
}

/// A finished plot.
#[derive(Debug)]
pub struct Plot {
    /// The heading.
    pub title: &'static str,
    /// Under it.
    pub note: String,
    /// Names and colours, in the order in which they are seen from above.
    pub legend: Vec<(String, Hue)>,
    /// The picture.
    pub svg: String,
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

fn drawing<E: std::error::Error>(error: E) -> Failure {
    Failure::Drawing(error.to_string())
}

impl Chart {
    /// Draws it over `length_s` seconds with the marks' numbers.
    ///
    /// # Errors
    /// If the drawing library refuses.
    pub fn draw(&self, length_s: f64, marks: &[Mark]) -> Result<Plot> {
        let curves = self.curves();
        let values = curves.iter().flat_map(|(_, points)| points.iter().map(|point| point.1));
        let highest = values.fold(0.0, f64::max);
        let length_s = length_s.max(1.0);
        let mut svg = String::new();
        {
            let root = SVGBackend::with_string(&mut svg, (WIDTH, HEIGHT)).into_drawing_area();
            if self.shape == Shape::LogLines {
                let top = (highest * HEADROOM).max(LOG_MIN * 100.0);
                let axis = (LOG_MIN..top).log_scale();
                self.draw_on(&root, (length_s, LOG_MIN, top), axis, &curves, marks)?;
            } else {
                let top = if highest > 0.0 { highest * HEADROOM } else { 1.0 };
                self.draw_on(&root, (length_s, 0.0, top), 0.0..top, &curves, marks)?;
            }
            root.present().map_err(drawing)?;
        }
        let mut legend: Vec<_> =
            self.series.iter().map(|series| (series.label.clone(), series.hue)).collect();
        if self.shape == Shape::Stacked {
            legend.reverse();
        }
        Ok(Plot { title: self.title, note: self.note.clone(), legend, svg: themed(&svg) })
    }

    /// The curves from back to front: of a stack the sums, the whole first.
    fn curves(&self) -> Vec<(Hue, Vec<Point>)> {
        let thinned = |series: &Series| (series.hue, thin(&series.points));
        if self.shape != Shape::Stacked {
            return self.series.iter().map(thinned).collect();
        }
        let mut sums: Vec<Point> = Vec::new();
        let mut curves = Vec::with_capacity(self.series.len());
        for series in &self.series {
            if sums.is_empty() {
                sums.clone_from(&series.points);
            } else {
                sums.iter_mut().zip(&series.points).for_each(|(sum, point)| sum.1 += point.1);
            }
            curves.push((series.hue, thin(&sums)));
        }
        curves.reverse();
        curves
    }

    fn draw_on<Y>(
        &self,
        root: &Area<'_>,
        (length_s, bottom, top): (f64, f64, f64),
        axis: Y,
        curves: &[(Hue, Vec<Point>)],
        marks: &[Mark],
    ) -> Result<()>
    where
        Y: AsRangedCoord<Value = f64>,
        Y::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        let text = ("sans-serif", FONT_PX).into_font().color(&Paint::Ink.stand_in());
        let mut chart = ChartBuilder::on(root)
            .margin_top(16)
            .margin_right(16)
            .x_label_area_size(26)
            .y_label_area_size(64)
            .build_cartesian_2d(0.0..length_s, axis)
            .map_err(drawing)?;
        chart
            .configure_mesh()
            .x_labels(LABELS_X)
            .y_labels(LABELS_Y)
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(Paint::Grid.stand_in())
            .axis_style(Paint::Grid.stand_in())
            .label_style(text)
            .x_label_formatter(&|seconds| clock(*seconds, length_s))
            .y_label_formatter(&|value| self.unit.label(*value))
            .draw()
            .map_err(drawing)?;
        for (hue, points) in curves {
            let colour = Paint::Series(*hue).stand_in();
            let inside = |&(t, value): &Point| (t, value.clamp(bottom, top));
            if self.shape == Shape::Stacked {
                let area = AreaSeries::new(points.iter().map(inside), 0.0, colour);
                chart.draw_series(area).map_err(drawing)?;
                continue;
            }
            // Without events there is no latency; what others have seen has few points.
            let gap_s = match self.shape {
                Shape::LogLines => GAP_S_MIN.max(length_s * GAP_SHARE),
                _ => f64::INFINITY,
            };
            for stretch in stretches(points, gap_s) {
                let line = LineSeries::new(stretch.iter().map(inside), colour.stroke_width(2));
                chart.draw_series(line).map_err(drawing)?;
            }
        }
        draw_marks(root, &mut chart, (bottom, top), marks)
    }
}

/// A line for each mark, with its number over it where there is room.
fn draw_marks<Y: Ranged<ValueType = f64>>(
    root: &Area<'_>,
    chart: &mut ChartContext<'_, SVGBackend<'_>, Cartesian2d<RangedCoordf64, Y>>,
    (bottom, top): (f64, f64),
    marks: &[Mark],
) -> Result<()> {
    let ink = Paint::Ink.stand_in();
    let number = ("sans-serif", MARK_FONT_PX).into_font().color(&ink);
    let mut number_x = i32::MIN;
    for (index, mark) in marks.iter().enumerate() {
        let line = vec![(mark.t_s, bottom), (mark.t_s, top)];
        let style = ink.mix(0.45).stroke_width(1);
        chart.draw_series([PathElement::new(line, style)]).map_err(drawing)?;
        let (x, y) = chart.backend_coord(&(mark.t_s, top));
        if x < number_x.saturating_add(NUMBER_PX_MIN) {
            continue;
        }
        number_x = x;
        let label = (index + 1).to_string();
        root.draw(&Text::new(label, (x - 3, (y - 13).max(0)), number.clone())).map_err(drawing)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn series(hue: Hue, values: [f64; 2]) -> Series {
        let points = vec![(0.0, values[0]), (1.0, values[1])];
        Series { label: hue.variable().to_owned(), hue, points }
    }

    fn chart(shape: Shape, values: [[f64; 2]; 2]) -> Chart {
        let series = vec![series(Hue::Edge, values[0]), series(Hue::Brain, values[1])];
        Chart { title: "Memory", note: String::new(), shape, unit: Unit::Bytes, series }
    }

    #[test]
    fn a_stack_is_sums_drawn_from_the_whole_to_the_lowest() {
        let stack = chart(Shape::Stacked, [[1.0, 2.0], [10.0, 20.0]]).curves();
        assert_eq!(stack[0], (Hue::Brain, vec![(0.0, 11.0), (1.0, 22.0)]));
        assert_eq!(stack[1], (Hue::Edge, vec![(0.0, 1.0), (1.0, 2.0)]));
    }

    #[test]
    fn a_plot_has_its_series_marks_and_no_colour_of_its_own() {
        for shape in [Shape::Stacked, Shape::Lines, Shape::LogLines] {
            let marks = [Mark { t_s: 0.5, mark: "kill".to_owned() }];
            let plot = chart(shape, [[1e6, 2e6], [3e6, 1e6]]).draw(1.0, &marks).unwrap();
            for needle in ["var(--edge)", "var(--brain)", "var(--ink)", "var(--grid)", ">\n1\n<"] {
                assert!(plot.svg.contains(needle), "{shape:?}: no {needle} in {}", plot.svg);
            }
            assert!(!plot.svg.contains("\"#0102"), "{shape:?}: a stand-in was left");
        }
    }

    #[test]
    fn nothing_measured_is_an_empty_plot() {
        let empty = Series { label: "edge".to_owned(), hue: Hue::Edge, points: Vec::new() };
        let chart = Chart { series: vec![empty], ..chart(Shape::LogLines, [[0.0; 2]; 2]) };
        assert!(chart.draw(0.0, &[]).unwrap().svg.contains("<svg"));
    }
}
