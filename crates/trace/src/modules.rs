//! The executable and the libraries of a process.

use crate::raw::RawModule;
use std::collections::BTreeMap;

/// The number of a module of a process. A file that was loaded twice is two modules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ModuleId(pub u32);

/// An executable or a library, as it was loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Module {
    /// The path of its file. For a module of the kernel, a name that begins with `[`.
    pub path: String,
    /// The difference between its addresses in memory and those in its file.
    pub bias: u64,
    /// Its first address.
    pub start: u64,
    /// The address after its last one.
    pub end: u64,
    /// Its build id; empty if it has none.
    pub build_id: Vec<u8>,
    /// When it was noticed, in nanoseconds since the process began.
    pub loaded_ns: u64,
    /// When it was noticed that it had been unloaded, in nanoseconds since the process began.
    pub unloaded_ns: Option<u64>,
}

/// The modules of a process that were noticed so far.
#[derive(Debug, Clone, Default)]
pub struct Modules {
    all: Vec<Module>,
    /// The modules that are loaded, by their first addresses. No two of them overlap.
    loaded: BTreeMap<u64, ModuleId>,
    bytes: usize,
}

/// The limit on the memory for all modules of a process, in bytes.
pub(crate) const MAX_MODULE_BYTES: usize = 512 << 20;

impl Modules {
    /// Adds a module. An error says what is wrong with it.
    pub(crate) fn load(&mut self, raw: &RawModule<'_>, now: u64) -> Result<ModuleId, &'static str> {
        if raw.start >= raw.end {
            return Err("a module that ends before it begins");
        }
        if let Some(known) = self.find(raw.start) {
            let module = &self.all[known.0 as usize];
            let same = (module.start, module.end, module.bias) == (raw.start, raw.end, raw.bias);
            // Two threads that notice it at the same time may both announce it.
            if same && module.path.as_bytes() == raw.path {
                return Ok(known);
            }
        }
        // Unload the modules that it overlaps, from the last one backwards.
        while let Some((&start, id)) = self.loaded.range(..raw.end).next_back()
            && self.all[id.0 as usize].end > raw.start
        {
            self.unload(start, now);
        }
        self.bytes += size_of::<Module>() + raw.path.len() + raw.build_id.len();
        if self.bytes > MAX_MODULE_BYTES {
            return Err("more modules than a recording can have");
        }
        let id = ModuleId(self.all.len() as u32);
        self.all.push(Module {
            path: String::from_utf8_lossy(raw.path).into_owned(),
            bias: raw.bias,
            start: raw.start,
            end: raw.end,
            build_id: raw.build_id.to_vec(),
            loaded_ns: now,
            unloaded_ns: None,
        });
        self.loaded.insert(raw.start, id);
        Ok(id)
    }

    pub(crate) fn unload(&mut self, start: u64, now: u64) -> Option<ModuleId> {
        let id = self.loaded.remove(&start)?;
        self.all[id.0 as usize].unloaded_ns = Some(now);
        Some(id)
    }

    /// The loaded module that contains an address.
    pub fn find(&self, address: u64) -> Option<ModuleId> {
        let (_, &id) = self.loaded.range(..=address).next_back()?;
        (address < self.all[id.0 as usize].end).then_some(id)
    }

    /// The module with this number.
    pub fn get(&self, id: ModuleId) -> &Module {
        &self.all[id.0 as usize]
    }

    /// All modules, including those that were unloaded, in the order of their numbers.
    pub fn all(&self) -> &[Module] {
        &self.all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(start: u64, end: u64, path: &[u8]) -> RawModule<'_> {
        RawModule { bias: 0, start, end, build_id: &[], path }
    }

    #[test]
    fn a_module_replaces_those_that_it_overlaps_and_no_other() {
        let mut modules = Modules::default();
        for i in 0..10 {
            modules.load(&module(i * 0x100, i * 0x100 + 0x80, b"a"), i).unwrap();
        }
        let new = modules.load(&module(0x240, 0x501, b"b"), 99).unwrap();
        let unloaded: Vec<u32> =
            (0..10).filter(|&i| modules.all[i as usize].unloaded_ns == Some(99)).collect();
        assert_eq!(unloaded, [2, 3, 4, 5]);
        assert_eq!(modules.find(0x480), Some(new));
        assert_eq!(modules.find(0x210), None);
        assert_eq!((modules.find(0x17f), modules.find(0x180)), (Some(ModuleId(1)), None));
        assert_eq!(modules.find(0x600), Some(ModuleId(6)));
    }

    #[test]
    fn a_module_without_an_address_is_refused() {
        let mut modules = Modules::default();
        assert!(modules.load(&module(5, 5, b"a"), 0).is_err());
        assert!(modules.load(&module(u64::MAX, 0, b"a"), 0).is_err());
        assert!(modules.load(&module(0, u64::MAX, b"a"), 0).is_ok());
    }

    #[test]
    fn a_million_modules_take_no_time_that_grows_with_their_square() {
        let mut modules = Modules::default();
        for i in 0..1_000_000 {
            modules.load(&module(i * 2, i * 2 + 1, b""), 0).unwrap();
        }
        assert_eq!(modules.loaded.len(), 1_000_000);
    }

    #[test]
    fn names_take_no_more_memory_than_the_limit() {
        let mut modules = Modules::default();
        let path = vec![b'x'; 4096];
        let kept = (0..)
            .take_while(|&i| modules.load(&module(i * 2, i * 2 + 1, &path), 0).is_ok())
            .count();
        assert!((100_000..MAX_MODULE_BYTES / 4096).contains(&kept), "{kept}");
    }
}
