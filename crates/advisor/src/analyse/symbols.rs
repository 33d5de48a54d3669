//! Names, files and lines of a recording's frames, from what is installed on this machine.

use super::findings::StackFrame;
use super::stack_pass::StackStatistics;
use super::wrappers;
use addr2line::Loader;
use addr2line::gimli::{BaseAddresses, CieOrFde, EhFrame, RunTimeEndian, UnwindSection};
use hashbrown::HashMap;
use object::Endianness;
use object::elf::FileHeader64;
use object::read::elf::{ElfFile64, ElfSymbol64, Sym, SymbolTable};
use object::read::{Object, ObjectSection, ObjectSymbol, ReadCache};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fs::File;
use std::num::NonZero;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use trace_format::{EventAction, Module, ModuleId, Modules, NodeId, RecordingReader, Stacks};

/// Where distributions put debug information.
const DEBUG: &str = "/usr/lib/debug";

/// The recorder's own file, which was deleted with the recording's directory. Some allocations have
/// it in their stacks, because it allocates while it looks for the next malloc.
const RECORDER: &str = "allot-recorder.so";

/// The number of events whose modules are opened in advance.
const FIRST_EVENTS: usize = 10_000;

/// Modules whose files were opened.
pub type OpenedModules = Vec<(ModuleId, Result<ModuleFile, FileChanged>)>;

/// The names of one process's frames, looked up on demand.
pub struct Symbols<'m> {
    modules: &'m Modules,
    files: HashMap<ModuleId, ModuleFile>,
    known: HashMap<(Option<ModuleId>, u64), Rc<[StackFrame]>>,
    /// Modules whose file is not the one that was recorded.
    changed: BTreeSet<String>,
    /// Modules with neither debug information nor a symbol for some address that was looked up.
    nameless: BTreeSet<String>,
}

impl<'m> Symbols<'m> {
    /// The names of the functions in `modules`. The files of those that contain the innermost frame
    /// of a stack are opened at once, in parallel, except for those in `opened_in_advance`, which
    /// are open; the others on demand.
    pub fn new(
        modules: &'m Modules,
        stacks: &Stacks,
        all: &[StackStatistics],
        opened_in_advance: OpenedModules,
    ) -> Self {
        let innermost = |stack: &StackStatistics| stacks.module(NodeId(stack.node));
        let mut wanted: BTreeSet<ModuleId> = all.iter().filter_map(innermost).collect();
        opened_in_advance.iter().for_each(|(id, _)| {
            wanted.remove(id);
        });
        let mut opened = open(modules, &wanted.into_iter().collect::<Vec<_>>());
        opened.extend(opened_in_advance);
        let mut symbols = Self {
            modules,
            files: HashMap::new(),
            known: HashMap::new(),
            changed: BTreeSet::new(),
            nameless: BTreeSet::new(),
        };
        for (id, file) in opened {
            symbols.files.insert(id, module_file(modules.get(id), file, &mut symbols.changed));
        }
        symbols
    }

    /// The functions at a node: the innermost inlined one first, the one that contains them last.
    /// Never empty.
    pub fn at(&mut self, stacks: &Stacks, node: NodeId) -> Rc<[StackFrame]> {
        let (module, address) = (stacks.module(node), stacks.return_address(node));
        if let Some(frames) = self.known.get(&(module, address)) {
            return Rc::clone(frames);
        }
        let frames: Rc<[StackFrame]> = self.look_up(module, address).into();
        self.known.insert((module, address), Rc::clone(&frames));
        frames
    }

    /// Modules whose file has changed since the recording.
    pub fn changed(&self) -> impl Iterator<Item = &str> {
        self.changed.iter().map(String::as_str)
    }

    /// Modules of which some functions have no name.
    pub fn nameless(&self) -> impl Iterator<Item = &str> {
        self.nameless.iter().map(String::as_str)
    }

    fn look_up(&mut self, id: Option<ModuleId>, return_address: u64) -> Vec<StackFrame> {
        let Some(id) = id else {
            let function = format!("{return_address:#x}");
            return vec![frame(function, None, "?", false)];
        };
        let module = self.modules.get(id);
        // The return address is that of the instruction after the call.
        let address = return_address.wrapping_sub(1).wrapping_sub(module.bias);
        let name = base_name(&module.path).to_owned();
        if name == RECORDER {
            return vec![frame("the recorder".to_owned(), None, &name, false)];
        }
        let file = self
            .files
            .entry(id)
            .or_insert_with(|| module_file(module, ModuleFile::open(module), &mut self.changed));
        let mut frames = file.frames(address, &name);
        if frames.is_empty() {
            let function = match file.symbol(address) {
                Some(symbol) => demangled(symbol),
                None => {
                    self.nameless.insert(name.clone());
                    let start = file.function(Path::new(&module.path), address);
                    format!("{name}+{:#x}", start.unwrap_or(address))
                }
            };
            frames.push(frame(function, None, &name, false));
        }
        frames
    }
}

/// Opens the files of the modules that the first allocations of a process come from. This runs
/// while another thread reads all events.
pub fn open_in_advance(reader: &RecordingReader, process: usize) -> OpenedModules {
    // An error is reported where all of the recording is read.
    let Ok(mut events) = reader.events(process) else { return Vec::new() };
    let mut wanted = BTreeSet::new();
    for _ in 0..FIRST_EVENTS {
        let Some(Ok(event)) = events.next() else { break };
        if let EventAction::Alloc { site, .. } = event.action {
            wanted.extend(events.stacks().module(site));
        }
    }
    let (_, modules) = events.into_parts();
    wanted.into_iter().map(|id| (id, ModuleFile::open(modules.get(id)))).collect()
}

/// A module's file, or an empty one if it is not the one that was recorded; then the module is
/// added to `changed`.
fn module_file(
    module: &Module,
    opened: Result<ModuleFile, FileChanged>,
    changed: &mut BTreeSet<String>,
) -> ModuleFile {
    if opened.is_err() {
        changed.insert(module.path.clone());
    }
    opened.unwrap_or_default()
}

/// Opens the files of modules in parallel.
fn open(modules: &Modules, wanted: &[ModuleId]) -> OpenedModules {
    let next = AtomicUsize::new(0);
    let some = || {
        let numbers = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed));
        let ids = numbers.map_while(|number| wanted.get(number));
        ids.map(|&id| (id, ModuleFile::open(modules.get(id)))).collect::<Vec<_>>()
    };
    let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            (1..processors.min(wanted.len())).map(|_| scope.spawn(some)).collect();
        let mut opened = some();
        for thread in threads {
            opened.extend(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        opened
    })
}

fn frame(
    function: String,
    at: Option<(String, Option<u32>)>,
    module: &str,
    inlined: bool,
) -> StackFrame {
    let wrapper = wrappers::by_name(&function);
    let (file, line) = at.map_or((None, None), |(file, line)| (Some(file), line));
    StackFrame { function, file, line, module: module.to_owned(), inlined, wrapper }
}

fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn demangled(name: &str) -> String {
    // The linker's `name@@VERSION`.
    let name = name.split('@').next().unwrap_or(name);
    addr2line::demangle_auto(Cow::Borrowed(name), None).into_owned()
}

/// A function in a symbol table.
#[derive(Debug)]
struct FunctionSymbol {
    start: u64,
    size: u64,
    name: String,
}

/// The names in a module's file.
#[derive(Default)]
pub struct ModuleFile {
    symbols: Vec<FunctionSymbol>,
    /// Where functions begin and end, by the unwinding tables; read when a function has no name.
    functions: Option<Vec<Range<u64>>>,
    changed: bool,
    debug: Option<Loader>,
}

/// The file of a module is not the one that was recorded.
#[derive(Debug)]
pub struct FileChanged;

impl ModuleFile {
    /// Opens a module's file and its debug information. A file that can't be read has no names.
    fn open(module: &Module) -> Result<Self, FileChanged> {
        let path = Path::new(&module.path);
        if !path.is_absolute() {
            return Ok(Self::default());
        }
        let main = ElfFile::read(path);
        let same = |parsed: &ElfFile| {
            module.build_id.is_empty()
                || parsed.build_id.is_empty()
                || parsed.build_id == module.build_id
        };
        let main = match main {
            Some(main) if same(&main) => Some(main),
            Some(_) => None,
            None => None,
        };
        let missing = main.is_none();
        let main = main.unwrap_or_default();
        let (mut symbols, mut from, mut alternative) = (main.symbols, None, main.alternative);
        if main.has_debug {
            from = Some(path.to_owned());
        } else {
            let by_link = main.debug_link.map(|link| debug_links(path, &link));
            let candidates =
                by_build_id(&module.build_id).into_iter().chain(by_link.into_iter().flatten());
            for candidate in candidates {
                let Some(debug) = ElfFile::read(&candidate).filter(|debug| same(debug)) else {
                    continue;
                };
                symbols.extend(debug.symbols);
                alternative = debug.alternative;
                from = debug.has_debug.then_some(candidate);
                break;
            }
        }
        if missing && from.is_none() {
            return Err(FileChanged);
        }
        symbols.sort_by_key(|symbol| (symbol.start, symbol.size));
        let debug = from.and_then(|from| Loader::new_with_sup(&from, alternative).ok());
        Ok(Self { symbols, functions: None, changed: missing, debug })
    }

    /// The start of the function that contains an address, which identifies a function without a
    /// name.
    fn function(&mut self, path: &Path, address: u64) -> Option<u64> {
        if self.changed || !path.is_absolute() {
            return None;
        }
        let functions = self.functions.get_or_insert_with(|| functions(path).unwrap_or_default());
        let behind = functions.partition_point(|function| function.start <= address);
        let function = functions[..behind].last()?;
        function.contains(&address).then_some(function.start)
    }

    /// The functions at an address, by the debug information.
    fn frames(&self, address: u64, module: &str) -> Vec<StackFrame> {
        let mut frames = Vec::new();
        let Some(Ok(mut found)) = self.debug.as_ref().map(|debug| debug.find_frames(address))
        else {
            return frames;
        };
        while let Ok(Some(inner)) = found.next() {
            let name = inner.function.as_ref().and_then(|name| name.demangle().ok());
            let name = match name {
                Some(name) => name.into_owned(),
                None => match self.symbol(address) {
                    Some(symbol) => demangled(symbol),
                    None => break,
                },
            };
            let at = inner.location.as_ref().and_then(|at| Some((at.file?.to_owned(), at.line)));
            frames.push(frame(name, at, module, true));
        }
        if let Some(outermost) = frames.last_mut() {
            outermost.inlined = false;
        }
        frames
    }

    /// The function that contains an address, by the symbol table.
    fn symbol(&self, address: u64) -> Option<&str> {
        let behind = self.symbols.partition_point(|symbol| symbol.start <= address);
        // Symbols may be nested; looking at a few of them is enough.
        self.symbols[..behind]
            .iter()
            .rev()
            .take(8)
            .find(|symbol| address - symbol.start < symbol.size)
            .map(|symbol| &*symbol.name)
    }
}

/// The functions of a file, by its unwinding tables, in order.
fn functions(path: &Path) -> Option<Vec<Range<u64>>> {
    let cache = ReadCache::new(File::open(path).ok()?);
    let file = object::File::parse(&cache).ok()?;
    let section = file.section_by_name(".eh_frame")?;
    let data = section.uncompressed_data().ok()?;
    let endian = if file.is_little_endian() { RunTimeEndian::Little } else { RunTimeEndian::Big };
    let mut frames = EhFrame::new(&data, endian);
    frames.set_address_size(if file.is_64() { 8 } else { 4 });
    let address = |name| file.section_by_name(name).map_or(0, |section| section.address());
    let bases = BaseAddresses::default()
        .set_eh_frame(section.address())
        .set_text(address(".text"))
        .set_got(address(".got"));
    let mut found = Vec::new();
    let mut entries = frames.entries(&bases);
    while let Ok(Some(entry)) = entries.next() {
        if let CieOrFde::Fde(entry) = entry
            && let Ok(function) = entry.parse(EhFrame::cie_from_offset)
        {
            let start = function.initial_address();
            found.push(start..start.saturating_add(function.len()));
        }
    }
    found.sort_by_key(|function| function.start);
    Some(found)
}

/// The functions in a symbol table. Its names are read at once, because each single read would be a
/// system call.
fn functions_of<'data, 'file>(
    file: &'file ElfFile64<'data, Endianness, &'data ReadCache<File>>,
    table: &SymbolTable<'data, FileHeader64<Endianness>, &'data ReadCache<File>>,
    symbols: impl Iterator<Item = ElfSymbol64<'data, 'file, Endianness, &'data ReadCache<File>>>,
) -> impl Iterator<Item = FunctionSymbol> {
    let names = file.section_by_index(table.string_section());
    let names = names.and_then(|section| section.data()).unwrap_or_default();
    let is_function = |symbol: &ElfSymbol64<'data, 'file, Endianness, &'data ReadCache<File>>| {
        symbol.kind() == object::SymbolKind::Text && symbol.is_definition()
    };
    symbols.filter(is_function).filter_map(move |symbol| {
        let from = names.get(symbol.elf_symbol().st_name(file.endian()) as usize..)?;
        let name = from.split(|byte| *byte == 0).next()?;
        let name = std::str::from_utf8(name).ok()?.to_owned();
        Some(FunctionSymbol { start: symbol.address(), size: symbol.size(), name })
    })
}

/// The parts of an ELF file that are needed here.
#[derive(Default)]
struct ElfFile {
    build_id: Vec<u8>,
    symbols: Vec<FunctionSymbol>,
    has_debug: bool,
    debug_link: Option<String>,
    alternative: Option<PathBuf>,
}

impl ElfFile {
    fn read(path: &Path) -> Option<Self> {
        let cache = ReadCache::new(File::open(path).ok()?);
        let file = ElfFile64::<Endianness, _>::parse(&cache).ok()?;
        let name = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
        let symbols = functions_of(&file, file.elf_symbol_table(), file.symbols());
        let dynamic = functions_of(&file, file.elf_dynamic_symbol_table(), file.dynamic_symbols());
        let symbols = symbols.chain(dynamic).collect();
        let alternative = file.gnu_debugaltlink().ok().flatten().and_then(|(link, _)| name(link));
        Some(Self {
            build_id: file.build_id().ok().flatten().unwrap_or_default().to_vec(),
            symbols,
            has_debug: file
                .section_by_name(".debug_info")
                .is_some_and(|section| section.size() > 0),
            debug_link: file.gnu_debuglink().ok().flatten().and_then(|(link, _)| name(link)),
            alternative: alternative
                .map(|link| path.parent().unwrap_or(Path::new("/")).join(link))
                .filter(|path| path.exists()),
        })
    }
}

/// The path of the debug information for a build id.
fn by_build_id(id: &[u8]) -> Option<PathBuf> {
    let (first, rest) = id.split_first()?;
    let rest: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
    Some(PathBuf::from(format!("{DEBUG}/.build-id/{first:02x}/{rest}.debug")))
}

/// The paths at which a file's debug information may be, by its debug link.
fn debug_links(path: &Path, link: &str) -> Vec<PathBuf> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    let below = directory.strip_prefix("/").unwrap_or(directory);
    vec![
        directory.join(link),
        directory.join(".debug").join(link),
        Path::new(DEBUG).join(below).join(link),
    ]
}

/// A function's name without parameters and template arguments, for titles.
pub fn short(name: &str) -> String {
    // `<T as Trait>::method` and `operator<` keep their brackets.
    if name.starts_with('<') || name.contains("operator") || name.contains('+') {
        return name.to_owned();
    }
    let mut text = String::with_capacity(name.len());
    let mut depth = 0_u32;
    for c in name.chars() {
        match c {
            '<' | '(' | '[' => depth += 1,
            '>' | ')' | ']' => depth = depth.saturating_sub(1),
            _ if depth == 0 => text.push(c),
            _ => {}
        }
    }
    let text = text.replace("::::", "::");
    let text = text.trim().trim_end_matches(" const").trim_end_matches("::");
    if text.is_empty() { name.to_owned() } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_leaves_out_parameters_and_template_arguments() {
        for (name, title) in [
            ("xmlNewNode", "xmlNewNode"),
            ("ns::Tree<int, std::less<int> >::insert(int const&)", "ns::Tree::insert"),
            ("void f<int>(int)", "void f"),
            ("program::parse::{closure#0}", "program::parse::{closure#0}"),
            ("core::ops::function::FnOnce::call_once", "core::ops::function::FnOnce::call_once"),
            ("libxml2.so.2+0x1234", "libxml2.so.2+0x1234"),
        ] {
            assert_eq!(short(name), title);
        }
    }

    #[test]
    fn functions_without_names_are_found_by_the_unwinding_tables() {
        let own = std::env::current_exe().unwrap();
        let named = ElfFile::read(&own).unwrap().symbols;
        let functions = functions(&own).unwrap();
        let starts: std::collections::HashSet<u64> =
            functions.iter().map(|function| function.start).collect();
        let named_here: Vec<_> =
            named.iter().filter(|symbol| symbol.name.contains("analyse")).collect();
        assert!(named_here.len() > 100);
        let missing = named_here.iter().filter(|symbol| !starts.contains(&symbol.start)).count();
        assert_eq!(missing, 0, "of {}", named_here.len());
    }

    #[test]
    fn an_address_between_two_symbols_has_the_name_of_neither() {
        let symbol =
            |start, size, name: &str| FunctionSymbol { start, size, name: name.to_owned() };
        let symbols = vec![symbol(0x1000, 0x40, "first"), symbol(0x9000, 0, "exported")];
        let file = ModuleFile { symbols, ..ModuleFile::default() };
        for (address, name) in [
            (0x1000, Some("first")),
            (0x103f, Some("first")),
            (0x1040, None),
            (0x9000, None),
            (0x9100, None),
        ] {
            assert_eq!(file.symbol(address), name, "{address:#x}");
        }
    }

    #[test]
    fn build_ids_name_the_files_of_debug_information() {
        let path = by_build_id(&[0xab, 0xcd, 0x01]).unwrap();
        assert_eq!(path.to_str(), Some("/usr/lib/debug/.build-id/ab/cd01.debug"));
        assert_eq!(by_build_id(&[]), None);
    }
}
