//! The client's address from a proxy: no panic, no dependence on the cuts, bounds kept, and each
//! accepted header gives the address that was written.

#![no_main]

use std::net::IpAddr;

use halley_wire::proxy::{ProxyHeader, forwarded_for, parse};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let (cuts, input) = halley_fuzz::cuts(data);
    let bytes_max = if data.len() % 2 == 0 { 64 } else { 1_024 };
    let whole = parse(input, bytes_max);
    let first_said = cuts
        .iter()
        .map(|&end| parse(&input[..end], bytes_max))
        .find(|said| !matches!(said, Ok(None)))
        .unwrap_or(Ok(None));
    assert_eq!(first_said, whole);
    match whole {
        Ok(Some(header)) => coherent(&header, input, bytes_max),
        Ok(None) => assert!(input.len() < bytes_max.max(16)),
        Err(_) => {}
    }
    let trusted = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => ip.octets()[0] == 10,
        IpAddr::V6(ip) => ip.is_loopback(),
    };
    if let Some(ip) = forwarded_for(input.split(|byte| *byte == b'\n'), trusted) {
        assert!(!trusted(ip));
        let text = ip.to_string();
        assert_eq!(forwarded_for([text.as_bytes()].into_iter(), trusted), Some(ip));
    }
});

fn coherent(header: &ProxyHeader, input: &[u8], bytes_max: usize) {
    assert!(header.bytes >= 16 && header.bytes <= input.len().min(bytes_max));
    let length = usize::from(input[14]) << 8 | usize::from(input[15]);
    assert_eq!(header.bytes, 16 + length);
    // Nothing behind it counts.
    assert_eq!(parse(&input[..header.bytes], bytes_max), Ok(Some(*header)));
    match header.client {
        Some(IpAddr::V4(ip)) => assert_eq!(ip.octets(), input[16..20]),
        Some(IpAddr::V6(ip)) => assert_eq!(ip.octets(), input[16..32]),
        None => assert!(input[12] == 0x20 || matches!(input[13], 0x00 | 0x31)),
    }
}
