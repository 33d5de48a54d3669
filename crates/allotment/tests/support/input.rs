//! Bytes as decisions: the one encoding that fuzz targets, saved corpora and property tests share.

/// Reads decisions from bytes; when they run out every answer is 0 and
/// [`is_empty`](Input::is_empty).
pub struct Input<'b> {
    bytes: &'b [u8],
}

impl<'b> Input<'b> {
    pub fn new(bytes: &'b [u8]) -> Self {
        Self { bytes }
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// What was not read yet.
    pub fn rest(&self) -> &'b [u8] {
        self.bytes
    }

    pub fn byte(&mut self) -> u8 {
        match self.bytes.split_first() {
            Some((&first, rest)) => {
                self.bytes = rest;
                first
            }
            None => 0,
        }
    }

    pub fn word(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    pub fn long(&mut self) -> u64 {
        u64::from_le_bytes(core::array::from_fn(|_| self.byte()))
    }

    /// One of `count` choices.
    pub fn below(&mut self, count: usize) -> usize {
        assert!(count > 0);
        let wide = if count <= 256 { usize::from(self.byte()) } else { usize::from(self.word()) };
        wide % count
    }

    pub fn one_in(&mut self, chances: u8) -> bool {
        self.byte() % chances == 0
    }

    /// A size of an object: mostly small, sometimes none, rarely megabytes.
    pub fn size(&mut self) -> usize {
        match self.byte() {
            class @ 0..=15 => usize::from(class),
            16..=179 => usize::from(self.byte()) + 1,
            180..=229 => usize::from(self.word()) % 5000,
            230..=247 => usize::from(self.word()),
            248..=253 => usize::from(self.word()) * 16,
            254.. => usize::from(self.word()) * 48,
        }
    }

    /// An alignment: mostly one that types have, sometimes up to 2 MiB.
    pub fn align(&mut self) -> usize {
        match self.byte() {
            byte @ 0..=219 => 1 << (byte % 5),
            byte => 1 << (byte % 22),
        }
    }

    /// A number near an interesting one: small, a power of two, a limit.
    pub fn number(&mut self) -> usize {
        let near = match self.byte() % 8 {
            0 => usize::from(self.byte()),
            1 => usize::from(self.word()),
            2 => 1usize << (u32::from(self.byte()) % usize::BITS),
            3 => usize::MAX,
            4 => isize::MAX as usize,
            5 => 1 << (usize::BITS - 7),
            6 => (self.long() >> (self.byte() % 64)) as usize,
            _ => (1usize << (self.byte() % 28)).wrapping_mul(usize::from(self.byte() % 8) + 1),
        };
        let off = usize::from(self.byte() % 32);
        if self.byte() % 2 == 0 { near.saturating_add(off) } else { near.saturating_sub(off) }
    }
}
