//! The file of a trial: a run of the program in which the recorder's library gives the blocks of some
//! call stacks other memory, and records nothing.
//!
//! A *route* is the number of the memory that serves a stack's blocks; 0 is malloc's. The file has
//! frames. A frame has a route if all stacks that have it, and the same frames from it down to malloc,
//! have that route. Otherwise the file has the frames of its callers too.
//!
//! The file begins with [`TRIAL_MAGIC`], the number of modules (`u32`) and the number of slots
//! (`u32`, a power of two). The identities of the modules (`u64`) follow, then the slots: a hash table
//! with linear probing, at most half full. A slot holds a frame: the number of its callee's frame, or
//! [`ROOT`](super::ROOT) if that is malloc; its module; the offset in the module of the address to
//! which its callee returns; its own number; and its route. Each is a `u32`, but the offset is a `u64`.
//! A slot whose number is 0 is free. All numbers are little-endian.
//!
//! Modules are known by their build id or, without one, by their path, so that the addresses at
//! which they are loaded don't matter.

#[cfg(feature = "container")]
use super::FIRST_NODE;

/// The first bytes of the file.
pub const TRIAL_MAGIC: [u8; 8] = *b"ALLOTTRY";
/// The greatest number of a route. 0 is the program's own malloc.
pub const MAX_ROUTE: u8 = 15;
/// The largest number of a node.
pub const MAX_TRIAL_NODE: u32 = (1 << 24) - 1;

/// In the place of a route: the caller's frame decides.
const CALLER_DECIDES: u32 = 255;
const HEADER: usize = 16;
const SLOT: usize = 24;

/// What a module is known by.
pub fn module_identity(build_id: &[u8], path: &[u8]) -> u64 {
    let name = if build_id.is_empty() { path } else { build_id };
    // FNV-1a, by Fowler, Noll and Vo.
    name.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    })
}

/// A frame of some stacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrialNode {
    /// Its number, from [`FIRST_NODE`](super::FIRST_NODE) on.
    pub number: u32,
    /// The memory for blocks of these stacks; `None` if the caller's frame decides.
    pub route: Option<u8>,
}

/// Where a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TrialPlace {
    /// The number of its callee's frame, or [`ROOT`](super::ROOT).
    pub callee: u32,
    /// The number of its module in the file.
    pub module: u32,
    /// The address to which its callee returns, less the module's bias.
    pub offset: u64,
}

impl TrialPlace {
    fn hash(self) -> usize {
        let place = self.offset ^ u64::from(self.module) << 40;
        let mixed = (place ^ u64::from(self.callee) << 20).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed ^ mixed >> 32) as usize
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let field = bytes.get(at..at + 4).and_then(|field| field.try_into().ok());
    field.map_or(0, u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

/// A file that is read.
#[derive(Debug, Clone, Copy)]
pub struct TrialSites<'a> {
    modules: &'a [u8],
    slots: &'a [u8],
}

impl<'a> TrialSites<'a> {
    /// Reads a file. `None` if the bytes are not such a file, or are cut off.
    pub fn read(file: &'a [u8]) -> Option<Self> {
        let modules = u32_at(file, 8) as usize * 8;
        let slots = u32_at(file, 12) as usize;
        if !file.starts_with(&TRIAL_MAGIC) || !slots.is_power_of_two() {
            return None;
        }
        let rest = file.get(HEADER..)?;
        let (modules, slots) = (rest.get(..modules)?, rest.get(modules..modules + slots * SLOT)?);
        Some(Self { modules, slots })
    }

    /// The number of a module.
    pub fn module(&self, identity: u64) -> Option<u32> {
        let same = |at: &[u8]| u64_at(at, 0) == identity;
        self.modules.chunks_exact(8).position(same).map(|number| number as u32)
    }

    /// The frame at a place.
    pub fn node(&self, place: TrialPlace) -> Option<TrialNode> {
        let slots = self.slots.len() / SLOT;
        for step in 0..slots {
            let slot =
                &self.slots[(place.hash().wrapping_add(step) & (slots - 1)) * SLOT..][..SLOT];
            let number = u32_at(slot, 16);
            if number == 0 {
                return None;
            }
            let callee = u32_at(slot, 0);
            let its = TrialPlace { callee, module: u32_at(slot, 4), offset: u64_at(slot, 8) };
            if its == place {
                let route = match u32_at(slot, 20) {
                    CALLER_DECIDES => None,
                    route => Some((route as u8).min(MAX_ROUTE)),
                };
                return Some(TrialNode { number, route });
            }
        }
        None
    }
}

/// Collects frames for a file.
#[cfg(feature = "container")]
#[derive(Debug, Default)]
pub struct TrialSitesWriter {
    modules: Vec<u64>,
    frames: Vec<(TrialPlace, Option<u8>)>,
}

#[cfg(feature = "container")]
impl TrialSitesWriter {
    /// The number of a module.
    pub fn module(&mut self, identity: u64) -> u32 {
        let known = self.modules.iter().position(|module| *module == identity);
        known.unwrap_or_else(|| {
            self.modules.push(identity);
            self.modules.len() - 1
        }) as u32
    }

    /// Adds a frame whose place no other has. Returns its number; `None` if there are too many.
    pub fn add(&mut self, place: TrialPlace, route: Option<u8>) -> Option<u32> {
        let number = self.frames.len() as u32 + FIRST_NODE;
        if number > MAX_TRIAL_NODE {
            return None;
        }
        self.frames.push((place, route.map(|route| route.min(MAX_ROUTE))));
        Some(number)
    }

    /// The file's contents.
    pub fn finish(&self) -> Vec<u8> {
        let slots = (self.frames.len() * 2).next_power_of_two();
        let mut file = TRIAL_MAGIC.to_vec();
        file.extend((self.modules.len() as u32).to_le_bytes());
        file.extend((slots as u32).to_le_bytes());
        file.extend(self.modules.iter().flat_map(|identity| identity.to_le_bytes()));
        let first = file.len();
        file.resize(first + slots * SLOT, 0);
        for (index, (place, route)) in self.frames.iter().enumerate() {
            let mut at = place.hash() & (slots - 1);
            while u32_at(&file, first + at * SLOT + 16) != 0 {
                at = (at + 1) & (slots - 1);
            }
            let slot = &mut file[first + at * SLOT..][..SLOT];
            slot[0..4].copy_from_slice(&place.callee.to_le_bytes());
            slot[4..8].copy_from_slice(&place.module.to_le_bytes());
            slot[8..16].copy_from_slice(&place.offset.to_le_bytes());
            slot[16..20].copy_from_slice(&(index as u32 + FIRST_NODE).to_le_bytes());
            slot[20..24].copy_from_slice(&route.map_or(CALLER_DECIDES, u32::from).to_le_bytes());
        }
        file
    }
}

#[cfg(all(test, feature = "container"))]
mod tests {
    use super::super::ROOT;
    use super::*;

    #[test]
    fn what_was_written_is_read_and_nothing_else_is_there() {
        let mut writer = TrialSitesWriter::default();
        let program = writer.module(module_identity(b"id", b"/bin/a"));
        let library = writer.module(module_identity(b"", b"/lib/b"));
        assert_eq!(program, writer.module(module_identity(b"id", b"/moved/a")));
        let mut places = Vec::new();
        let mut callee = ROOT;
        for offset in 0..1000 {
            let module = if offset % 3 == 0 { program } else { library };
            let place = TrialPlace { callee, module, offset: offset * 4096 };
            let route = Some((offset % 5) as u8).filter(|route| *route != 4);
            let number = writer.add(place, route).unwrap();
            places.push((place, TrialNode { number, route }));
            callee = if offset % 10 == 0 { ROOT } else { number };
        }
        let file = writer.finish();
        let sites = TrialSites::read(&file).unwrap();
        assert_eq!(sites.module(module_identity(b"id", b"")), Some(program));
        assert_eq!(sites.module(module_identity(b"", b"/lib/c")), None);
        for (place, node) in places {
            assert_eq!(sites.node(place), Some(node));
            assert_eq!(sites.node(TrialPlace { offset: place.offset + 1, ..place }), None);
        }
        assert!(TrialSites::read(&file[..file.len() - 1]).is_none());
        assert!(TrialSites::read(b"ALLOTRAW").is_none());
        let empty = TrialSitesWriter::default().finish();
        let nowhere = TrialPlace { callee: ROOT, module: 0, offset: 0 };
        assert_eq!(TrialSites::read(&empty).unwrap().node(nowhere), None);
    }
}
