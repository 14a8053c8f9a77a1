//! Which plots a report has, and from what they are made.

use crate::chart::{Chart, Plot, Series, Shape};
use crate::error::Result;
use crate::paint::Hue;
use crate::record::{Latency, Record, Sample};
use crate::scale::{Point, Unit};

/// Parts of the memory, the lowest first: key in the samples, label, hue.
const MEMORY: [(&str, &str, Hue); 4] = [
    ("brain", "brain", Hue::Brain),
    ("edge", "edge", Hue::Edge),
    ("kernel", "kernel: sockets, slab, page tables", Hue::Kernel),
    ("clients", "load clients", Hue::Clients),
];

/// Parts of the processors' time.
const CPU: [(&str, &str, Hue); 5] = [
    ("brain", "brain", Hue::Brain),
    ("edge", "edge", Hue::Edge),
    ("clients", "load clients", Hue::Clients),
    ("publisher", "publisher or floor", Hue::Publisher),
    ("rest", "everything else, interrupts included", Hue::Rest),
];

type Look = fn(&Sample) -> Option<f64>;

/// Draws all plots that the samples have something for.
///
/// # Errors
/// If the drawing library refuses.
pub fn draw_all(record: &Record) -> Result<Vec<Plot>> {
    let length_s = record.samples.last().map_or(0.0, |sample| sample.t_s);
    let mut charts: Vec<Chart> = beside_others(record).into_iter().collect();
    charts.extend([memory(record), connections(record), deliveries(record), latencies(record)]);
    charts.push(cpu(record));
    charts.iter().map(|chart| chart.draw(length_s, &record.marks)).collect()
}

fn points(record: &Record, look: impl Fn(&Sample) -> Option<f64>) -> Vec<Point> {
    record.samples.iter().filter_map(|sample| Some((sample.t_s, look(sample)?))).collect()
}

/// A part that is missing in a sample (a process between its death and its successor) is nothing.
fn parts(
    record: &Record,
    names: &[(&str, &str, Hue)],
    of: fn(&Sample, &str) -> f64,
) -> Vec<Series> {
    let series = |&(key, label, hue): &(&str, &str, Hue)| {
        let points = points(record, |sample| Some(of(sample, key)));
        Series { label: label.to_owned(), hue, points }
    };
    names.iter().map(series).collect()
}

fn memory_of(sample: &Sample, part: &str) -> f64 {
    sample.memory_bytes.get(part).copied().unwrap_or(0.0)
}

fn memory(record: &Record) -> Chart {
    Chart {
        title: "Memory by part",
        note:
            "Processes as PSS; the kernel's as what it has more than before the run. The clients \
               are on this machine, so the kernel holds both ends of every connection."
                .to_owned(),
        shape: Shape::Stacked,
        unit: Unit::Bytes,
        series: parts(record, &MEMORY, memory_of),
    }
}

fn beside_others(record: &Record) -> Option<Chart> {
    let references = &record.found.references;
    if references.is_empty() {
        return None;
    }
    let own = |sample: &Sample| Some(memory_of(sample, "brain") + memory_of(sample, "edge"));
    let line = |label: &str, hue, points| Series { label: label.to_owned(), hue, points };
    let mut series = vec![
        line("Halley: brain and edge", Hue::Publisher, points(record, own)),
        line("brain", Hue::Brain, points(record, |s| Some(memory_of(s, "brain")))),
        line("edge", Hue::Edge, points(record, |s| Some(memory_of(s, "edge")))),
    ];
    let hues = [Hue::Other, Hue::Another].into_iter().cycle();
    let others = references.iter().zip(hues);
    series.extend(others.map(|(other, hue)| line(&other.label, hue, other.points.clone())));
    Some(Chart {
        title: "The server's memory beside the article's",
        note: "Both without the kernel's share.".to_owned(),
        shape: Shape::Lines,
        unit: Unit::Bytes,
        series,
    })
}

fn one(record: &Record, title: &'static str, label: &str, look: Look) -> Chart {
    let points = points(record, look);
    let series = vec![Series { label: label.to_owned(), hue: Hue::Edge, points }];
    Chart { title, note: String::new(), shape: Shape::Lines, unit: Unit::Count, series }
}

fn connections(record: &Record) -> Chart {
    one(record, "Connections", "open, as the clients see it", |sample| sample.connected)
}

fn deliveries(record: &Record) -> Chart {
    one(record, "Deliveries per second", "events received", |sample| sample.deliveries_per_s)
}

fn latencies(record: &Record) -> Chart {
    let series = |label: &str, hue, of: fn(&Latency) -> f64| {
        let look = |sample: &Sample| {
            sample.latency_ms.as_ref().filter(|latency| latency.count > 0).map(of)
        };
        Series { label: label.to_owned(), hue, points: points(record, look) }
    };
    Chart {
        title: "Latency of each interval",
        note: "From the moment at which an event was due to be published to its receipt; a \
               logarithmic axis."
            .to_owned(),
        shape: Shape::LogLines,
        unit: Unit::Ms,
        series: vec![
            series("longest", Hue::Rest, |latency| latency.max),
            series("p99", Hue::Other, |latency| latency.p99),
            series("p50", Hue::Clients, |latency| latency.p50),
        ],
    }
}

fn cpu(record: &Record) -> Chart {
    let of = |sample: &Sample, part: &str| sample.cpu.get(part).copied().unwrap_or(0.0);
    Chart {
        title: "Processors in use by part",
        note: String::new(),
        shape: Shape::Stacked,
        unit: Unit::Cores,
        series: parts(record, &CPU, of),
    }
}
