//! The fields of OPERATION: the operation's number and its members (20.2, 20.3).

use crate::Error;
use crate::list::Item;
use crate::wire::Reader;

/// What a WebSocket's client asks for (20.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum What {
    /// An event.
    Publish = 1,
    /// To follow a subject.
    Follow = 2,
    /// To follow it no longer.
    Unfollow = 3,
    /// That the session is subscribed to a subject.
    Subscribe = 4,
    /// That it is no longer.
    Unsubscribe = 5,
    /// That the session has a state.
    State = 6,
}

impl What {
    pub(crate) fn read(from: &mut Reader<'_>) -> Result<What, Error> {
        Ok(match from.u8()? {
            1 => What::Publish,
            2 => What::Follow,
            3 => What::Unfollow,
            4 => What::Subscribe,
            5 => What::Unsubscribe,
            6 => What::State,
            _ => return Err(Error::new("20.2", "unknown operation")),
        })
    }
}

/// A member of an operation (20.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs, reason = "the members are explained in protocol/http.md 18 to 26")]
pub enum MemberName {
    Subject = 1,
    Subjects = 2,
    To = 3,
    Data = 4,
    Id = 5,
    Ack = 6,
    Keep = 7,
}

impl MemberName {
    /// As clients write it.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            MemberName::Subject => "subject",
            MemberName::Subjects => "subjects",
            MemberName::To => "to",
            MemberName::Data => "data",
            MemberName::Id => "id",
            MemberName::Ack => "ack",
            MemberName::Keep => "keep",
        }
    }

    /// The name of this number.
    #[must_use]
    pub fn of(number: u8) -> Option<MemberName> {
        Some(match number {
            1 => MemberName::Subject,
            2 => MemberName::Subjects,
            3 => MemberName::To,
            4 => MemberName::Data,
            5 => MemberName::Id,
            6 => MemberName::Ack,
            7 => MemberName::Keep,
            _ => return None,
        })
    }
}

/// `name:u8 value:(length:u32 bytes)`: a member and its JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member<'a> {
    /// Which.
    pub name: MemberName,
    /// As the client wrote it.
    pub value: &'a [u8],
}

impl<'a> Item<'a> for Member<'a> {
    fn read(from: &mut Reader<'a>) -> Result<Self, Error> {
        const UNKNOWN: Error = Error::new("20.3", "unknown member of an operation");
        let name = MemberName::of(from.u8()?).ok_or(UNKNOWN)?;
        let bytes = from.u32()?;
        Ok(Member { name, value: from.bytes(bytes as usize)? })
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.push(self.name as u8);
        out.extend_from_slice(&(self.value.len() as u32).to_be_bytes());
        out.extend_from_slice(self.value);
    }
}
