//! Which version of the link two sides speak (3.2). `protocol/link-versions.json` has
//! examples.

/// The highest version that this crate speaks.
pub const VERSION: u16 = 6;
/// The lowest: those before it have a link for each worker, and no trunk.
pub const VERSION_MIN: u16 = 6;
/// The first version whose hellos have the shape that they have for good.
pub(crate) const HELLO_SINCE: u16 = 4;
/// The setting by which a brain says the highest version that it speaks. A worker that doesn't know
/// it takes the lowest, which is the hello's.
pub const VERSION_MAX_SETTING: &[u8] = b"link_version_max";

/// The highest version that both sides speak, each from its lowest to its highest.
pub fn common(ours: (u16, u16), theirs: (u16, u16)) -> Option<u16> {
    let highest = ours.1.min(theirs.1);
    (highest >= ours.0.max(theirs.0)).then_some(highest)
}
