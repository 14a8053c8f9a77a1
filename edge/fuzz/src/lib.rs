//! Shared by the fuzz targets: where to cut an input into reads, and the two readers of which one
//! is the tests' walk through `halley-wire`, the other a simple one that knows nothing of it.

#![forbid(unsafe_code)]

#[path = "../../halley-wire/tests/tables/connection.rs"]
pub mod connection;
#[path = "../../halley-wire/tests/tables/second/mod.rs"]
pub mod second;

/// Cuts beyond this many add time and find nothing.
const CUTS_MAX: usize = 64;

/// Takes the cuts from the front of `data`: how many, then for each how far it lies from the one
/// before. Gives them in ascending order, all within what is left, which ends the last piece.
pub fn cuts(data: &[u8]) -> (Vec<usize>, &[u8]) {
    let Some((&count, rest)) = data.split_first() else {
        return (vec![0], data);
    };
    let count = usize::from(count).min(CUTS_MAX).min(rest.len());
    let (steps, input) = rest.split_at(count);
    let mut at = 0;
    let mut cuts: Vec<usize> = steps
        .iter()
        .map(|&step| {
            at = (at + usize::from(step)).min(input.len());
            at
        })
        .collect();
    cuts.push(input.len());
    (cuts, input)
}

/// The limits of a head as the second reader takes them.
pub fn second_limits(limits: &halley_wire::http1::head::HeadLimits) -> second::Limits {
    second::Limits {
        request_line_bytes_max: limits.request_line_bytes_max,
        header_bytes_max: limits.header_bytes_max,
        headers_max: limits.headers_max,
    }
}
