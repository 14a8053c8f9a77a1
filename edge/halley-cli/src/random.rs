//! Ids that no other run gives.

use ring::rand::{SecureRandom, SystemRandom};

/// 96 bits from the system, in 24 hex digits, behind `cli-`.
#[must_use]
pub fn random_id() -> String {
    let mut bytes = [0; 12];
    if SystemRandom::new().fill(&mut bytes).is_err() {
        // Without the system's randomness: the time and the process are told apart.
        let now = crate::clock::now_ms().to_be_bytes();
        bytes[..8].copy_from_slice(&now);
        bytes[8..].copy_from_slice(&std::process::id().to_be_bytes());
    }
    let digits = bytes.map(|byte| format!("{byte:02x}")).concat();
    format!("cli-{digits}")
}
