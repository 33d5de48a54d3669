//! The executable and the libraries of a process.

use crate::raw::RawModule;
use std::collections::BTreeMap;

/// One of the modules that a process had, the same file loaded twice being two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ModuleId(pub u32);

/// An executable or a library, as it was loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Module {
    /// Where it was loaded from; for what the kernel brings a name that begins with `[`.
    pub path: String,
    /// What was added to the addresses of its file.
    pub bias: u64,
    /// Its first address.
    pub start: u64,
    /// The address behind its last one.
    pub end: u64,
    /// Its build id; empty where it has none.
    pub build_id: Vec<u8>,
    /// When it was noticed, in nanoseconds since the process began.
    pub loaded_ns: u64,
    /// When it had gone.
    pub unloaded_ns: Option<u64>,
}

/// The modules of a process that were met so far.
#[derive(Debug, Clone, Default)]
pub struct Modules {
    all: Vec<Module>,
    loaded: BTreeMap<u64, ModuleId>,
}

impl Modules {
    pub(crate) fn load(&mut self, raw: &RawModule<'_>, now: u64) -> ModuleId {
        if let Some(known) = self.find(raw.start) {
            let module = &self.all[known.0 as usize];
            let same = (module.start, module.end, module.bias) == (raw.start, raw.end, raw.bias);
            // Threads that notice it at the same time may both say so.
            if same && module.path.as_bytes() == raw.path {
                return known;
            }
        }
        let overlapping: Vec<u64> = self
            .loaded
            .range(..raw.end)
            .filter(|(_, id)| self.all[id.0 as usize].end > raw.start)
            .map(|(&start, _)| start)
            .collect();
        for start in overlapping {
            self.unload(start, now);
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
        id
    }

    pub(crate) fn unload(&mut self, start: u64, now: u64) -> Option<ModuleId> {
        let id = self.loaded.remove(&start)?;
        self.all[id.0 as usize].unloaded_ns = Some(now);
        Some(id)
    }

    /// The module that is now at an address.
    pub fn find(&self, address: u64) -> Option<ModuleId> {
        let (_, &id) = self.loaded.range(..=address).next_back()?;
        (address < self.all[id.0 as usize].end).then_some(id)
    }

    /// A module.
    pub fn get(&self, id: ModuleId) -> &Module {
        &self.all[id.0 as usize]
    }

    /// All of them, those that have gone too, in the order of their numbers.
    pub fn all(&self) -> &[Module] {
        &self.all
    }
}
