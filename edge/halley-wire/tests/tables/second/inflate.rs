//! The second reader of compressed messages (RFC 7692 7.2.2, RFC 1951): bit by bit, by counting
//! codes of each length, as slow as that is.

/// What is read behind a message: its tail, and a last block.
const END: [u8; 9] = [0, 0, 0xff, 0xff, 1, 0, 0, 0xff, 0xff];
const LENGTHS: [(usize, u32); 29] = [
    (3, 0),
    (4, 0),
    (5, 0),
    (6, 0),
    (7, 0),
    (8, 0),
    (9, 0),
    (10, 0),
    (11, 1),
    (13, 1),
    (15, 1),
    (17, 1),
    (19, 2),
    (23, 2),
    (27, 2),
    (31, 2),
    (35, 3),
    (43, 3),
    (51, 3),
    (59, 3),
    (67, 4),
    (83, 4),
    (99, 4),
    (115, 4),
    (131, 5),
    (163, 5),
    (195, 5),
    (227, 5),
    (258, 0),
];
const ORDER: [usize; 19] = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];
const BROKEN: u16 = 1007;

struct Reader<'a> {
    data: &'a [u8],
    at: usize,
    bit: u32,
    out: Vec<u8>,
    /// Where the output of this stream begins.
    start: usize,
    most: usize,
}

/// A code: how many symbols there are of each length, and the symbols in their order.
struct Code {
    counts: [usize; 16],
    symbols: Vec<usize>,
}

/// The message, or the code with which it fails.
pub fn inflate(message: &[u8], most: usize) -> Result<Vec<u8>, u16> {
    let data = [message, &END].concat();
    let mut reader = Reader { data: &data, at: 0, bit: 0, out: Vec::new(), start: 0, most };
    loop {
        if reader.block()? {
            if reader.at == message.len() || reader.at == data.len() {
                return Ok(reader.out);
            }
            reader.start = reader.out.len();
        }
    }
}

impl Reader<'_> {
    /// One block; true if it is the last of its stream, which ends at a byte then.
    fn block(&mut self) -> Result<bool, u16> {
        let last = self.bits(1)? == 1;
        match self.bits(2)? {
            0 => self.stored()?,
            1 => {
                let lengths: Vec<usize> = (0..288)
                    .map(|symbol| match symbol {
                        0..=143 => 8,
                        144..=255 => 9,
                        256..=279 => 7,
                        _ => 8,
                    })
                    .collect();
                self.codes(&code(&lengths, true)?, &code(&[5; 30], true)?)?;
            }
            2 => self.dynamic()?,
            _ => return Err(BROKEN),
        }
        if last {
            self.align();
        }
        Ok(last)
    }

    fn align(&mut self) {
        if self.bit > 0 {
            (self.at, self.bit) = (self.at + 1, 0);
        }
    }

    fn bits(&mut self, count: u32) -> Result<usize, u16> {
        let mut value = 0;
        for place in 0..count {
            let byte = *self.data.get(self.at).ok_or(BROKEN)?;
            value |= usize::from(byte >> self.bit & 1) << place;
            self.bit += 1;
            if self.bit == 8 {
                (self.at, self.bit) = (self.at + 1, 0);
            }
        }
        Ok(value)
    }

    fn say(&mut self, byte: u8) -> Result<(), u16> {
        self.out.push(byte);
        if self.out.len() > self.most { Err(1009) } else { Ok(()) }
    }

    fn stored(&mut self) -> Result<(), u16> {
        self.align();
        let (length, complement) = (self.bits(16)?, self.bits(16)?);
        if length != !complement & 0xffff {
            return Err(BROKEN);
        }
        for _ in 0..length {
            let byte = self.bits(8)? as u8;
            self.say(byte)?;
        }
        Ok(())
    }

    fn symbol(&mut self, code: &Code) -> Result<usize, u16> {
        let (mut value, mut first, mut index) = (0, 0, 0);
        for count in &code.counts[1..] {
            value |= self.bits(1)?;
            if value < first + count {
                return Ok(code.symbols[index + value - first]);
            }
            index += count;
            first = (first + count) << 1;
            value <<= 1;
        }
        Err(BROKEN)
    }

    fn codes(&mut self, literals: &Code, distances: &Code) -> Result<(), u16> {
        loop {
            let symbol = self.symbol(literals)?;
            match symbol {
                0..=255 => self.say(symbol as u8)?,
                256 => return Ok(()),
                _ => {
                    let (base, extra) = *LENGTHS.get(symbol - 257).ok_or(BROKEN)?;
                    let length = base + self.bits(extra)?;
                    let symbol = self.symbol(distances)?;
                    let extra = (symbol as u32 / 2).saturating_sub(1);
                    let base = if symbol < 4 { symbol } else { (2 + symbol % 2) << extra };
                    let distance = 1 + base + self.bits(extra)?;
                    if symbol > 29 || distance > self.out.len() - self.start {
                        return Err(BROKEN);
                    }
                    for _ in 0..length {
                        self.say(self.out[self.out.len() - distance])?;
                    }
                }
            }
        }
    }

    fn dynamic(&mut self) -> Result<(), u16> {
        let (literals, distances) = (257 + self.bits(5)?, 1 + self.bits(5)?);
        let known = 4 + self.bits(4)?;
        if literals > 286 || distances > 30 {
            return Err(BROKEN);
        }
        let mut lengths = vec![0; 19];
        for place in &ORDER[..known] {
            lengths[*place] = self.bits(3)?;
        }
        let of_lengths = code(&lengths, true)?;
        let mut lengths = Vec::new();
        while lengths.len() < literals + distances {
            let (value, times) = match self.symbol(&of_lengths)? {
                16 => (*lengths.last().ok_or(BROKEN)?, 3 + self.bits(2)?),
                17 => (0, 3 + self.bits(3)?),
                18 => (0, 11 + self.bits(7)?),
                length => (length, 1),
            };
            lengths.resize(lengths.len() + times, value);
        }
        if lengths.len() > literals + distances || lengths[256] == 0 {
            return Err(BROKEN);
        }
        let literal = code(&lengths[..literals], false)?;
        self.codes(&literal, &code(&lengths[literals..], false)?)
    }
}

/// RFC 1951 3.2.2. A code must be complete, but one of a single bit may be alone, and there may be
/// no distances.
fn code(lengths: &[usize], complete: bool) -> Result<Code, u16> {
    let mut counts = [0; 16];
    lengths.iter().filter(|length| **length > 0).for_each(|length| counts[*length] += 1);
    let mut left = 1_i64;
    for count in &counts[1..] {
        left = left * 2 - *count as i64;
        if left < 0 {
            return Err(BROKEN);
        }
    }
    let longest = counts.iter().rposition(|count| *count > 0).unwrap_or(0);
    let fixed_distances = lengths.len() == 30 && counts[5] == 30;
    if left > 0 && !fixed_distances && (complete || longest > 1) {
        return Err(BROKEN);
    }
    let mut symbols: Vec<usize> =
        (0..lengths.len()).filter(|symbol| lengths[*symbol] > 0).collect();
    symbols.sort_by_key(|symbol| lengths[*symbol]);
    Ok(Code { counts, symbols })
}
