//! Reading and writing of the primitive fields (2.1, 2.2).

use crate::Error;

pub(crate) const SHORT: Error = Error::new("2.3", "frame is too short for its type");

/// A cursor over a payload; every read is checked.
#[derive(Clone, Copy)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(payload: &'a [u8]) -> Self {
        Reader { rest: payload }
    }

    pub(crate) fn bytes(&mut self, n: usize) -> Result<&'a [u8], Error> {
        let (head, tail) = self.rest.split_at_checked(n).ok_or(SHORT)?;
        self.rest = tail;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let (head, tail) = self.rest.split_first_chunk::<N>().ok_or(SHORT)?;
        self.rest = tail;
        Ok(*head)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Error> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Error> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Error> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Error> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    pub(crate) fn conn(&mut self) -> Result<u64, Error> {
        match self.u64()? {
            conn if conn < crate::CONN_LIMIT => Ok(conn),
            _ => Err(Error::new("2.4", "connection id is not below 2^48")),
        }
    }

    pub(crate) fn transport(&mut self) -> Result<u8, Error> {
        match self.u8()? {
            transport @ 0..=crate::TRANSPORT_MAX => Ok(transport),
            _ => Err(Error::new("2.6", "unknown transport")),
        }
    }

    pub(crate) fn str8(&mut self) -> Result<&'a [u8], Error> {
        let n = self.u8()?;
        self.bytes(usize::from(n))
    }

    pub(crate) fn str16(&mut self) -> Result<&'a [u8], Error> {
        let n = self.u16()?;
        self.bytes(usize::from(n))
    }

    pub(crate) fn cursor(&mut self) -> Result<&'a [u8], Error> {
        let cursor = self.str8()?;
        if !crate::is_cursor(cursor) {
            return Err(Error::new("7.2", "cursor has other bytes than A-Z a-z 0-9 - _"));
        }
        Ok(cursor)
    }

    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    pub(crate) fn remaining(&self) -> &'a [u8] {
        self.rest
    }

    pub(crate) fn end(self) -> Result<(), Error> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(Error::new("2.3", "frame is longer than its type allows"))
        }
    }
}

pub(crate) fn put_str8(out: &mut Vec<u8>, bytes: &[u8]) {
    let bytes = &bytes[..bytes.len().min(usize::from(u8::MAX))];
    out.push(bytes.len() as u8);
    out.extend_from_slice(bytes);
}

pub(crate) fn put_str16(out: &mut Vec<u8>, bytes: &[u8]) {
    let bytes = &bytes[..bytes.len().min(usize::from(u16::MAX))];
    out.extend_from_slice(&(bytes.len() as u16).to_be_bytes());
    out.extend_from_slice(bytes);
}
