//! Numbers at the axes, as people read them, and the thinning of long series.

/// Points of one curve; more can't be seen at the width of a page.
const POINTS_MAX: usize = 600;

/// A point: seconds and a value.
pub type Point = (f64, f64);

/// What a value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Bytes of memory.
    Bytes,
    /// Things, or things per second.
    Count,
    /// Milliseconds.
    Ms,
    /// Processors.
    Cores,
}

impl Unit {
    /// A value with its unit.
    #[must_use]
    pub fn label(self, value: f64) -> String {
        match self {
            Self::Bytes if value.abs() >= 1e9 => format!("{} GB", short(value / 1e9)),
            Self::Bytes => format!("{} MB", short(value / 1e6)),
            Self::Count if value.abs() >= 1e6 => format!("{} M", short(value / 1e6)),
            Self::Count if value.abs() >= 1e4 => format!("{} k", short(value / 1e3)),
            Self::Count => short(value),
            Self::Ms if value >= 1e3 => format!("{} s", short(value / 1e3)),
            Self::Ms => format!("{} ms", short(value)),
            Self::Cores => short(value),
        }
    }
}

/// At most two digits behind the point, and none that say nothing.
fn short(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A time since the begin: `m:ss`, from two hours on `h:mm h`.
#[must_use]
pub fn clock(seconds: f64, whole: f64) -> String {
    let seconds = seconds.max(0.0).round() as u64;
    if whole >= 7200.0 {
        format!("{}:{:02} h", seconds / 3600, seconds % 3600 / 60)
    } else {
        format!("{}:{:02}", seconds / 60, seconds % 60)
    }
}

/// Leaves so many points as can be seen: of each stretch the highest, because peaks are what a
/// reader looks for, at its own time. First and last stay.
#[must_use]
pub fn thin(points: &[Point]) -> Vec<Point> {
    let stretch = points.len().div_ceil(POINTS_MAX).max(1);
    if stretch == 1 {
        return points.to_vec();
    }
    let highest = |part: &[Point]| part.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1));
    let mut thinned: Vec<Point> = points.chunks(stretch).filter_map(highest).collect();
    if let (Some(first), Some(last)) = (points.first(), points.last()) {
        if thinned.first() != Some(first) {
            thinned.insert(0, *first);
        }
        if thinned.last() != Some(last) {
            thinned.push(*last);
        }
    }
    thinned
}

/// The stretches of a series between which nothing was seen for more than `gap_s` seconds.
pub fn stretches(points: &[Point], gap_s: f64) -> impl Iterator<Item = &[Point]> {
    points.chunk_by(move |before, after| after.0 - before.0 <= gap_s)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_units_and_no_idle_digits() {
        let labels = [
            (Unit::Bytes, 1.5e9, "1.5 GB"),
            (Unit::Bytes, 78e6, "78 MB"),
            (Unit::Count, 1e6, "1 M"),
            (Unit::Count, 64_000.0, "64 k"),
            (Unit::Count, 950.0, "950"),
            (Unit::Ms, 0.25, "0.25 ms"),
            (Unit::Ms, 10_000.0, "10 s"),
            (Unit::Cores, 2.0, "2"),
        ];
        for (unit, value, label) in labels {
            assert_eq!(unit.label(value), label);
        }
    }

    #[test]
    fn times_are_minutes_until_they_are_hours() {
        assert_eq!(clock(65.0, 600.0), "1:05");
        assert_eq!(clock(5_400.0, 86_400.0), "1:30 h");
    }

    #[test]
    fn thinning_keeps_the_ends_and_the_peak() {
        let mut points: Vec<Point> = (0..10_000).map(|t| (f64::from(t), 1.0)).collect();
        points[5_003].1 = 99.0;
        let thinned = thin(&points);
        assert!(thinned.len() <= POINTS_MAX + 2);
        assert!(thinned.contains(&(5_003.0, 99.0)));
        assert_eq!((thinned[0].0, thinned[thinned.len() - 1].0), (0.0, 9_999.0));
        assert!(thinned.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }

    #[test]
    fn a_short_series_stays_as_it_is() {
        assert_eq!(thin(&[(0.0, 3.0), (1.0, 2.0)]), [(0.0, 3.0), (1.0, 2.0)]);
        assert!(thin(&[]).is_empty());
    }

    #[test]
    fn a_series_is_cut_where_nothing_was_seen() {
        let points = [(0.0, 1.0), (0.5, 1.0), (9.0, 1.0)];
        let cut: Vec<_> = stretches(&points, 3.0).collect();
        assert_eq!(cut, [&points[..2], &points[2..]]);
    }
}
