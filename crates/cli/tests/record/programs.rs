//! Programs for the tests of `allot record`, compiled where there is a compiler, and what was
//! recorded of them.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use trace_format::container::ProcessEnd;
use trace_format::raw::{AllocationFlags, LockKind};
use trace_format::{Event, EventAction, Modules, NodeId, Process, RecordingReader, Stacks};

/// What every program begins with.
pub const HEAD: &str = "
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#define KEEP(p) __asm__ volatile(\"\" : : \"r\"(p) : \"memory\")
";

/// A program, or a library.
pub struct Program(PathBuf);

impl Program {
    /// One that is there.
    pub fn at(path: &str) -> Self {
        Self(path.into())
    }

    pub fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }

    /// Its functions by their addresses.
    pub fn functions(&self) -> BTreeMap<u64, String> {
        let output = Command::new("nm").arg("--defined-only").arg(&self.0).output().unwrap();
        String::from_utf8(output.stdout)
            .unwrap()
            .lines()
            .filter_map(|line| {
                let mut words = line.split(' ');
                let address = u64::from_str_radix(words.next()?, 16).ok()?;
                matches!(words.next()?, "t" | "T")
                    .then(|| Some((address, words.next()?.to_owned())))?
            })
            .collect()
    }
}

/// What was recorded.
pub struct Recorded {
    pub status: ExitStatus,
    pub errors: String,
    /// Where it is, while the test runs.
    pub file: PathBuf,
    reader: RecordingReader,
    /// Of each process.
    images: Vec<Image>,
}

/// A process.
struct Image {
    events: Vec<Event>,
    stacks: Stacks,
    modules: Modules,
}

/// An allocation of one of the processes.
pub struct Allocation<'r> {
    pub process: usize,
    pub thread: u32,
    pub size: u64,
    pub flags: AllocationFlags,
    image: &'r Image,
    site: NodeId,
}

/// A wait for a lock.
pub struct Wait {
    pub lock: LockKind,
    pub duration_ns: u64,
    pub stack: Vec<String>,
}

fn place(name: &str) -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("record");
    let directory = directory.join(format!("{}-{number}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    directory.join(name)
}

/// Compiles a program. `None`, and a word about it, where there is no compiler, or it lacks what
/// the flags ask for.
pub fn compiled(name: &str, source: &str, flags: &[&str]) -> Option<Program> {
    let program = place(name);
    let file = program.with_extension("c");
    fs::write(&file, with_head(source)).unwrap();
    let output = match Command::new("cc")
        .args(flags)
        .arg("-o")
        .arg(&program)
        .arg(&file)
        .args(["-ldl"])
        .output()
    {
        Ok(output) => output,
        Err(error) => {
            eprintln!("skipped: no C compiler: {error}");
            return None;
        }
    };
    let errors = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() && flags.contains(&"-static") {
        eprintln!("skipped: no static C library: {errors}");
        return None;
    }
    assert!(output.status.success(), "{name}: {errors}");
    Some(Program(program))
}

/// Compiles a program for the C library musl, dynamically linked. `None`, and a word about it, where
/// there is no compiler for it.
pub fn compiled_for_musl(name: &str, source: &str) -> Option<Program> {
    let program = place(name);
    let file = program.with_extension("c");
    fs::write(&file, with_head(source)).unwrap();
    let output =
        Command::new("musl-gcc").args(["-O1", "-g", "-o"]).arg(&program).arg(&file).output();
    let Ok(output) = output else {
        eprintln!("SKIPPED: there is no musl-gcc (package musl-tools)");
        return None;
    };
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    Some(Program(program))
}

/// Compiles a program in C++. `None`, and a word about it, where there is no compiler.
pub fn compiled_cpp(name: &str, source: &str, flags: &[&str]) -> Option<Program> {
    let program = place(name);
    let file = program.with_extension("cpp");
    fs::write(&file, with_head(source)).unwrap();
    let mut command = Command::new("c++");
    command.arg("-std=c++17").args(flags).arg("-o").arg(&program).arg(&file).arg("-ldl");
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => {
            eprintln!("skipped: no C++ compiler: {error}");
            return None;
        }
    };
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    Some(Program(program))
}

/// A program with its [`HEAD`].
fn with_head(source: &str) -> String {
    if source.contains("#define _GNU_SOURCE") {
        source.to_owned()
    } else {
        format!("{HEAD}{source}")
    }
}

/// Records a program without arguments.
pub fn record(program: &Program) -> Recorded {
    record_with(program, &[], |_| {})
}

/// Records a program.
pub fn record_with(
    program: &Program,
    arguments: &[&str],
    change: impl FnOnce(&mut Command),
) -> Recorded {
    run(program.path(), arguments, "", change)
}

/// Ctrl-C ends it, as it ends what a terminal runs. A shell starts what it runs in the background
/// so that it ignores that, tests too, and what ignores it goes on to while it is recorded.
fn heeding_interrupts(command: &mut Command) -> &mut Command {
    // SAFETY: `signal` may be called between fork and exec, and no handler is set.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGINT, libc::SIG_DFL);
            Ok(())
        })
    }
}

/// Records a program in a group of its own that writes a line and goes on; then does something to
/// that group.
pub fn record_until_ready(program: &Program, act: impl FnOnce(i32)) -> Recorded {
    let file = place("recording.allot");
    let mut command = Command::new(env!("CARGO_BIN_EXE_allot"));
    command.args(["record", "-o"]).arg(&file).arg("--").arg(program.path());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = heeding_interrupts(&mut command).process_group(0).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    act(child.id() as i32);
    let output = child.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    Recorded::of(output.status, errors, file)
}

/// Records a program that may be installed.
pub fn record_installed(
    name: &str,
    arguments: &[&str],
    input: &str,
    change: impl FnOnce(&mut Command),
) -> Option<Recorded> {
    let found =
        std::env::split_paths(&std::env::var_os("PATH")?).any(|path| path.join(name).is_file());
    found.then(|| run(name, arguments, input, change))
}

fn run(
    program: &str,
    arguments: &[&str],
    input: &str,
    change: impl FnOnce(&mut Command),
) -> Recorded {
    let file = place("recording.allot");
    let allot = env!("CARGO_BIN_EXE_allot");
    let mut command = Command::new(allot);
    command.args(["record", "-o"]).arg(&file).arg("--").arg(program).args(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    change(&mut command);
    // A limit on files has to hold in the program alone.
    let limit = command.get_envs().find(|(name, _)| *name == "ALLOT_TEST_LIMIT");
    if let Some((_, Some(kib))) = limit {
        let kib = kib.to_str().unwrap().to_owned();
        command = Command::new(allot);
        command.args(["record", "-o"]).arg(&file).arg("--");
        command
            .args(["bash", "-c", &format!("ulimit -f {kib} && exec \"$@\""), "-", program])
            .args(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    }
    let mut child = command.spawn().unwrap();
    // A program that doesn't read is no failure.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let beside = fs::read_dir(file.parent().unwrap()).unwrap().count();
    assert_eq!(beside, 1, "nothing is left beside the recording");
    Recorded::of(output.status, errors, file)
}

impl Image {
    /// The frames of a stack, the innermost first: the module's name and the offset of the call.
    fn stack(&self, site: NodeId) -> Vec<String> {
        let frame = |node: NodeId| {
            let call = self.stacks.return_address(node) - 1;
            self.stacks.module(node).map_or(format!("{call:#x}"), |id| {
                let module = self.modules.get(id);
                let name = module.path.rsplit('/').next().unwrap();
                format!("{name}+{:#x}", call - module.bias)
            })
        };
        let mut frames: Vec<String> = self.stacks.frames(site).map(frame).collect();
        if self.stacks.is_cut_off(site) {
            frames.push("...".to_owned());
        }
        frames
    }
}

impl Allocation<'_> {
    /// The frames that asked for it, the innermost first.
    pub fn stack(&self) -> Vec<String> {
        self.image.stack(self.site)
    }

    /// The offsets of those frames that are in a module.
    pub fn offsets_in(&self, module: &str) -> impl Iterator<Item = u64> {
        let prefix = format!("{module}+0x");
        self.stack().into_iter().filter_map(move |frame| {
            let offset = frame.strip_prefix(&prefix)?;
            Some(u64::from_str_radix(offset, 16).unwrap())
        })
    }
}

impl Recorded {
    fn of(status: ExitStatus, errors: String, file: PathBuf) -> Self {
        let reader =
            RecordingReader::open(&file).unwrap_or_else(|error| panic!("{error}: {errors}"));
        assert_eq!(reader.cut_off_at(), None, "{errors}");
        let images = (0..reader.processes().len()).map(|process| {
            let mut events = reader.events(process).unwrap();
            let all = events.by_ref().map(Result::unwrap).collect();
            let (stacks, modules) = events.into_parts();
            Image { events: all, stacks, modules }
        });
        let images = images.collect();
        Self { status, errors, file, reader, images }
    }

    pub fn processes(&self) -> &[Process] {
        self.reader.processes()
    }

    /// The end of a process.
    pub fn end(&self, process: usize) -> &ProcessEnd {
        self.processes()[process].end.as_ref().unwrap()
    }

    /// How many events of all processes are such.
    pub fn count(&self, is_such: impl Fn(&EventAction) -> bool) -> usize {
        let events = self.images.iter().flat_map(|image| &image.events);
        events.filter(|event| is_such(&event.action)).count()
    }

    pub fn allocations(&self) -> impl Iterator<Item = Allocation<'_>> {
        self.images.iter().enumerate().flat_map(|(process, image)| {
            image.events.iter().filter_map(move |event| match event.action {
                EventAction::Alloc { size, site, flags, .. } => {
                    Some(Allocation { process, thread: event.thread, size, flags, image, site })
                }
                _ => None,
            })
        })
    }

    /// The waits for locks of all processes.
    pub fn waits(&self) -> Vec<Wait> {
        let waits = self.images.iter().flat_map(|image| {
            image.events.iter().filter_map(move |event| match event.action {
                EventAction::LockWait { lock, duration_ns, site, .. } => {
                    Some(Wait { lock, duration_ns, stack: image.stack(site) })
                }
                _ => None,
            })
        });
        waits.collect()
    }

    fn replay(&self, process: usize) -> (BTreeMap<u64, u64>, Vec<u64>, usize) {
        let mut live = BTreeMap::<u64, u64>::new();
        let mut unknown = Vec::new();
        let mut overlaps = 0;
        for event in &self.images[process].events {
            match event.action {
                EventAction::Alloc { address, size, .. } => {
                    let before = live.range(..address).next_back();
                    let behind = live.range(address..).next();
                    overlaps += usize::from(before.is_some_and(|(at, size)| at + size > address));
                    overlaps += usize::from(
                        behind.is_some_and(|(&at, _)| at == address || at < address + size),
                    );
                    live.insert(address, size);
                }
                EventAction::Free { address, .. } if live.remove(&address).is_none() => {
                    unknown.push(address);
                }
                _ => {}
            }
        }
        (live, unknown, overlaps)
    }

    /// Blocks of a process that are never freed, with their sizes.
    pub fn live(&self, process: usize) -> BTreeMap<u64, u64> {
        self.replay(process).0
    }

    /// Frees of addresses without a recorded live block.
    pub fn unknown_frees(&self, process: usize) -> Vec<u64> {
        self.replay(process).1
    }

    /// Allocations where another live block was.
    pub fn overlaps(&self, process: usize) -> usize {
        self.replay(process).2
    }
}

/// The allocations of a small program: it uses sizes that no library asks for.
pub fn mine(recorded: &Recorded, from: u64, to: u64) -> Vec<Allocation<'_>> {
    recorded.allocations().filter(|event| (from..to).contains(&event.size)).collect()
}
