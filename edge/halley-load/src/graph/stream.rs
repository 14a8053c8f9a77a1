//! Text made by many threads, written by one in order.
//!
//! Protocol: blocks `0..blocks` are dealt to the threads in turn. Each thread hands finished blocks
//! over through a channel of its own and gets its buffers back through another; the writer takes
//! from the channels in the same turn, so the order of the output doesn't depend on timing.
//!
//! Bound: each thread has [`BUFFERS`] buffers and waits when all are full.

use std::io::{self, Write};
use std::sync::mpsc;
use std::thread;

/// Buffers per thread: one being written, one ready, one being filled.
const BUFFERS: usize = 3;

/// Calls `fill(block, buffer)` for every block on `threads` threads and writes the buffers to
/// `out` in the order of the blocks. `written(block)` is called after each.
///
/// # Errors
/// The first error of `out`; nothing is written after it.
pub fn in_order(
    blocks: u64,
    threads: usize,
    fill: impl Fn(u64, &mut Vec<u8>) + Sync,
    out: &mut dyn Write,
    mut written: impl FnMut(u64),
) -> io::Result<()> {
    let fill = &fill;
    thread::scope(|scope| {
        let mut lanes = Vec::new();
        for thread in 0..threads as u64 {
            let (full_in, full) = mpsc::sync_channel::<Vec<u8>>(BUFFERS);
            let (empty, empty_out) = mpsc::sync_channel::<Vec<u8>>(BUFFERS);
            for _ in 0..BUFFERS {
                let _ = empty.try_send(Vec::new());
            }
            scope.spawn(move || {
                for block in (thread..blocks).step_by(threads) {
                    let Ok(mut buffer) = empty_out.recv() else { return };
                    buffer.clear();
                    fill(block, &mut buffer);
                    if full_in.send(buffer).is_err() {
                        return;
                    }
                }
            });
            lanes.push((full, empty));
        }
        for block in 0..blocks {
            let (full, empty) = &lanes[(block % threads as u64) as usize];
            let buffer = full.recv().map_err(io::Error::other)?;
            out.write_all(&buffer)?;
            let _ = empty.send(buffer);
            written(block);
        }
        out.flush()
    })
}

/// Appends `number` in decimal.
pub fn push_decimal(buffer: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    buffer.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_order_is_that_of_the_blocks_for_any_number_of_threads() {
        let expected: Vec<u8> = (0..257u64).flat_map(|n| format!("{n}\n").into_bytes()).collect();
        for threads in [1, 2, 3, 7] {
            let mut out = Vec::new();
            let mut written = Vec::new();
            let fill = |block, buffer: &mut Vec<u8>| {
                push_decimal(buffer, block);
                buffer.push(b'\n');
            };
            in_order(257, threads, fill, &mut out, |block| written.push(block)).unwrap();
            assert_eq!(out, expected);
            assert!(written.into_iter().eq(0..257));
        }
    }

    #[test]
    fn an_output_that_breaks_ends_it() {
        struct Broken;
        impl Write for Broken {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let result = in_order(1000, 2, |_, b| b.push(b'x'), &mut Broken, |_| ());
        assert_eq!(result.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn decimals() {
        for number in [0, 9, 10, 1_000_000, u64::MAX] {
            let mut buffer = Vec::new();
            push_decimal(&mut buffer, number);
            assert_eq!(buffer, number.to_string().into_bytes());
        }
    }
}
