//! Groups and their members (`protocol/link.md` 11), as the brain names them: sessions join and
//! leave, and an event begins its way to all of them. Their gauges change with them.

use halley_link::{Event, List};

use crate::conns::table::Phase;
use crate::link::goodbye::LinkEnd;
use crate::sessions::base::io::Io;
use crate::stats::Stat;

/// GROUP_JOIN.
///
/// # Errors
/// 11.2, when there are too many groups.
pub fn join(io: &mut Io, group: u32, conns: List<'_, u64>) -> Result<(), LinkEnd> {
    for conn in conns.iter() {
        let Some((index, slot)) = io.conns.find(conn) else { continue };
        if !matches!(slot.phase(), Phase::Opening | Phase::Live) {
            continue;
        }
        match io.fan_out.join(group, index) {
            Ok(added) => io.conns.stats.add(Stat::GroupMembers, added.into()),
            Err(_) => return Err(LinkEnd::broken("11.2", "too many groups")),
        }
    }
    io.conns.stats.set(Stat::Groups, io.fan_out.len() as u64);
    Ok(())
}

/// GROUP_LEAVE.
pub fn leave(io: &mut Io, group: u32, conns: List<'_, u64>) {
    for conn in conns.iter() {
        let Some((index, _)) = io.conns.find(conn) else { continue };
        if io.fan_out.leave(group, index) {
            io.conns.stats.sub(Stat::GroupMembers, 1);
        }
    }
}

/// GROUP_END.
pub fn end(io: &mut Io, group: u32) {
    let members = io.fan_out.end(group);
    io.conns.stats.sub(Stat::GroupMembers, members as u64);
    io.conns.stats.set(Stat::Groups, io.fan_out.len() as u64);
}

/// A handshake (11.3).
pub fn end_all(io: &mut Io) {
    io.fan_out.end_all();
    io.conns.stats.set(Stat::GroupMembers, 0);
    io.conns.stats.set(Stat::Groups, 0);
}

/// A session ends: see
/// [`FanOut::remove_member`](crate::groups::fan_out::FanOut::remove_member).
pub fn remove(io: &mut Io, index: u32) {
    let of = io.fan_out.remove_member(index);
    io.conns.stats.sub(Stat::GroupMembers, of as u64);
}

/// GROUP_DELIVER: the event is in flight to all members of now.
///
/// # Errors
/// As of a DELIVER.
pub fn deliver(io: &mut Io, group: u32, event: &Event<'_>) -> Result<(), LinkEnd> {
    io.link.cursor_passes(event)?;
    io.conns.stats.count(Stat::GroupEvents);
    io.fan_out.begin(group, event, io.link.cursor(), &io.conns.settings);
    Ok(())
}
