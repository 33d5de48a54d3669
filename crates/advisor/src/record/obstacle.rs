//! Finds out before a program runs whether it can be recorded: the recorder must be loaded with it,
//! before its `malloc`.

use object::elf::{self, FileHeader64};
use object::read::elf::{FileHeader, ProgramHeader, Sym};
use object::{Endianness, FileKind};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Why a program can't be recorded, or only partly, and what to do about it, in one line.
#[derive(Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// Nothing would be recorded.
    Unseen(String),
    /// Some of its memory would not be recorded.
    Partly(String),
}

/// The file that a command names, as a shell finds it.
pub fn find(program: &OsStr) -> Option<PathBuf> {
    let runs = |path: &Path| {
        fs::metadata(path)
            .is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    if program.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(program)).filter(|path| runs(path));
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(program)).find(|path| runs(path))
}

/// The obstacle to recording the program in a file, if there is one.
pub fn obstacle(path: &Path) -> Option<Obstacle> {
    obstacle_behind(path, 4)
}

fn obstacle_behind(path: &Path, scripts: usize) -> Option<Obstacle> {
    let name = path.display();
    let file = fs::File::open(path).ok()?;
    let bytes = fs::read(path).ok()?;
    if let Some(line) = bytes.strip_prefix(b"#!") {
        let line = line.split(|&byte| byte == b'\n').next()?;
        let interpreter =
            line.split(|byte| byte.is_ascii_whitespace()).find(|word| !word.is_empty())?;
        let interpreter = PathBuf::from(std::ffi::OsString::from_vec(interpreter.to_vec()));
        return (scripts > 0).then(|| obstacle_behind(&interpreter, scripts - 1)).flatten();
    }
    let unseen = |why: String| Some(Obstacle::Unseen(why));
    match FileKind::parse(&*bytes).ok()? {
        FileKind::Elf64 => {}
        FileKind::Elf32 => {
            return unseen(format!(
                "{name} is a 32-bit program, and the recorder is a 64-bit library; record a 64-bit build"
            ));
        }
        _ => return None,
    }
    let header = FileHeader64::<Endianness>::parse(&*bytes).ok()?;
    let endian = header.endian().ok()?;
    let machine = if cfg!(target_arch = "aarch64") { elf::EM_AARCH64 } else { elf::EM_X86_64 };
    if header.e_machine(endian) != machine {
        return unseen(format!(
            "{name} is a program for another processor; record it on a machine of that kind"
        ));
    }
    let sections = header.sections(endian, &*bytes).ok()?;
    if sections.iter().any(|section| {
        matches!(sections.section_name(endian, section), Ok(b".gopclntab" | b".go.buildinfo"))
    }) {
        return unseen(format!(
            "{name} is written in Go, whose runtime has an allocator of its own that a preloaded library can't record; use pprof's heap profile"
        ));
    }
    let programs = header.program_headers(endian, &*bytes).ok()?;
    if !programs.iter().any(|program| program.p_type(endian) == elf::PT_INTERP) {
        return unseen(format!(
            "{name} is linked statically, so the recorder can't be loaded before its malloc; link it dynamically to record it"
        ));
    }
    let metadata = file.metadata().ok()?;
    let mode = metadata.permissions().mode();
    let (user, group) = (nix::unistd::Uid::current(), nix::unistd::Gid::current());
    let others = mode & 0o4000 != 0 && metadata.uid() != user.as_raw()
        || mode & 0o2000 != 0 && metadata.gid() != group.as_raw();
    if others {
        return unseen(format!(
            "{name} runs with another user's or group's rights, so the loader ignores the recorder; record it as that user, from a copy without the setuid bit"
        ));
    }
    let symbols = sections.symbols(endian, &*bytes, elf::SHT_DYNSYM).ok()?;
    let own = symbols.iter().any(|symbol| {
        !symbol.is_undefined(endian) && symbols.symbol_name(endian, symbol) == Ok(b"malloc")
    });
    if own {
        return unseen(format!(
            "{name} has a malloc of its own in its executable, which takes precedence over the recorder's; build it with the system's malloc to record it"
        ));
    }
    let is_python = path.file_name().is_some_and(|name| name.as_bytes().starts_with(b"python"));
    if is_python
        && std::env::var_os("PYTHONMALLOC").is_none_or(|way| !way.as_bytes().starts_with(b"malloc"))
    {
        return Some(Obstacle::Partly(format!(
            "{name} keeps its objects in pools of its own, which are not recorded; set PYTHONMALLOC=malloc to record them"
        )));
    }
    None
}
