//! The fast paths, disassembled: how many instructions, none of them locked, and how many bytes
//! they write.
//!
//! The functions are those of `examples/fast_paths.rs`, built here with optimisation. An
//! instruction counts if it runs when every conditional jump falls through, up to the `ret`, which
//! is not counted. A jump inside the function counts, and is followed.
//!
//! A build without the standard library has the same counts, for the allocators that it has.
#![cfg(target_arch = "x86_64")]

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::process::Command;

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfo, InstructionInfoFactory,
    Mnemonic, OpAccess,
};
use object::{Object, ObjectSection, ObjectSymbol};

/// (function, most instructions)
const GOLDEN: [(&str, usize); 25] = [
    ("golden_arena_alloc_u32", 11),
    ("golden_arena1_alloc_u32", 17),
    ("golden_arena_try_alloc_u32", 13),
    ("golden_slab_alloc", 9),
    ("golden_slab_free", 18),
    ("golden_handle_alloc", 7),
    ("golden_handle_free", 14),
    ("golden_slab_box_drop", 18),
    ("golden_list_alloc", 6),
    ("golden_list_free", 5),
    ("golden_reap_alloc", 15),
    ("golden_reap_alloc_40", 6),
    ("golden_reap_alloc_u32", 8),
    ("golden_reap_free", 13),
    ("golden_pool_alloc", 17),
    ("golden_pool_free", 15),
    ("golden_pool_ref_alloc", 27),
    ("golden_pool_ref_free", 29),
    ("golden_global_alloc", 18),
    ("golden_global_free", 29),
    ("golden_sealed_number", 2),
    ("golden_sealed_text", 3),
    ("golden_published_read", 30),
    ("golden_reading_drop", 17),
    ("golden_published_copy", 32),
];

/// (function with one loop, most instructions of one round, bytes that a round writes: the value
/// and the arena's position)
const LOOPS: [(&str, usize, usize); 1] = [("golden_own_arena_loop", 13, 16)];

/// (function, most instructions before the global allocator beneath gets its turn, the jump there
/// included)
const GLOBAL_ALLOC: [(&str, usize); 2] = [("golden_global_alloc", 4), ("golden_global_free", 6)];

/// (function without a loop, most instructions on any path, the functions that it may call). It
/// calls one of them in a checked mode only, the other at most once for each window. So the time
/// of frees is proportional to their number.
const LOOPLESS: [(&str, usize, &[&str]); 1] =
    [("golden_arena_free", 32, &["free_checked", "free_before_window"])];

/// The functions of `GOLDEN` that a build without the standard library has.
const WITHOUT_STD: [&str; 5] = [
    "golden_arena_alloc_u32",
    "golden_arena1_alloc_u32",
    "golden_arena_try_alloc_u32",
    "golden_list_alloc",
    "golden_list_free",
];

/// The bytes of the values that the functions below allocate.
const SIZES: [usize; 5] = [8, 16, 64, 192, 512];

/// The sizes of the arrays of bytes. The compiler fills larger ones by a call.
const FILLED_SIZES: [usize; 3] = [16, 64, 192];

/// (functions `golden_`, this name, `_` and the bytes of the value; bytes that the allocator writes
/// for itself)
const VALUES: [(&str, usize); 43] = [
    ("arena_alloc", 8),
    ("arena_try_alloc", 8),
    ("arena_alloc_with", 8),
    ("arena_try_alloc_with", 8),
    ("arena_alloc_boxed", 8),
    ("arena_try_alloc_boxed", 8),
    ("arena_alloc_undropped", 8),
    ("list_alloc", 16),
    ("list_alloc_dropped", 16),
    ("list_try_alloc_dropped", 16),
    ("list_alloc_with", 16),
    ("list_try_alloc_with", 16),
    ("list_slot_fill", 16),
    ("reap_alloc_value", 16),
    ("reap_try_alloc", 16),
    ("reap_alloc_with", 16),
    ("reap_try_alloc_with", 16),
    ("reap_alloc_boxed", 16),
    ("reap_alloc_undropped", 16),
    ("slab_alloc", 8),
    ("slab_alloc_dropped", 8),
    ("slab_try_alloc_dropped", 8),
    ("slab_alloc_with", 8),
    ("slab_try_alloc_with", 8),
    ("slab_slot_fill", 8),
    ("handle_alloc", 8),
    ("handle_try_alloc_dropped", 8),
    ("handle_alloc_with", 8),
    ("handle_try_alloc_with", 8),
    ("handle_slot_fill", 8),
    ("pool_box", 16),
    ("pool_box_dropped", 16),
    ("pool_box_try_dropped", 16),
    ("pool_box_current", 16),
    ("arena_push", 8),
    ("arena_push_dropped", 8),
    ("arena_try_push_dropped", 8),
    ("reap_push", 8),
    ("reap_push_dropped", 8),
    ("reap_try_push_dropped", 8),
    ("pool_push", 8),
    ("pool_push_dropped", 8),
    ("pool_try_push_dropped", 8),
];

/// The same of functions that call others, which are not looked into.
const VALUES_BEHIND_CALLS: [(&str, usize); 2] = [("slab_alloc_for", 8), ("sealer_value", 8)];

/// Builds the library and the example in a folder of their own: the build that runs this test may
/// hold the lock of the usual one, and the example needs none of the dev-dependencies that cargo
/// would build for it.
fn build_example(example: &str, flags: &[&str]) -> Vec<u8> {
    let target = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("golden_{example}"));
    let release = target.join("release");
    let manifest = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    run(Command::new(env!("CARGO"))
        .args(["build", "--release", "--lib"])
        .args(flags)
        .arg("--target-dir")
        .arg(&target)
        .arg("--manifest-path")
        .arg(manifest.join("Cargo.toml")));
    let binary = target.join(example);
    run(Command::new(std::env::var_os("RUSTC").unwrap_or("rustc".into()))
        .args(["--edition=2024", "-Copt-level=3", "-Ccodegen-units=1", "-o"])
        .arg(&binary)
        .arg("--extern")
        .arg(format!("allotment={}", release.join("liballotment.rlib").display()))
        .arg("-L")
        .arg(format!("dependency={}", release.join("deps").display()))
        .arg(manifest.join("examples").join(example).with_extension("rs")));
    std::fs::read(binary).expect("the example is there")
}

/// Without the flags of the build around it: instrumentation would be counted too, and an
/// incremental build inlines less.
fn run(command: &mut Command) {
    let status = command
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("CARGO_INCREMENTAL")
        .env_remove("CARGO_BUILD_TARGET")
        .env_remove("CARGO_INCREMENTAL")
        .status()
        .expect("the toolchain runs");
    assert!(status.success(), "{command:?}");
}

/// What runs from a function's start to its `ret`, conditional jumps not taken.
#[derive(Default)]
struct FastPath {
    instructions: usize,
    /// How many have a lock prefix.
    locked: usize,
    /// How many there are up to the first conditional jump, with it.
    first_jump: usize,
    /// The bytes written, except where registers are saved (`push`).
    written: usize,
}

fn symbol<'s, 'f>(file: &'s object::File<'f>, function: &str) -> object::Symbol<'f, 's> {
    file.symbols()
        .find(|symbol| symbol.name() == Ok(function))
        .unwrap_or_else(|| panic!("{function} is in the symbol table"))
}

/// The code from the function's start on.
fn disassemble<'f>(file: &object::File<'f>, function: &str) -> Decoder<'f> {
    let symbol = symbol(file, function);
    let section = file.section_by_index(symbol.section_index().unwrap()).unwrap();
    let code = section.data().unwrap();
    let start = (symbol.address() - section.address()) as usize;
    Decoder::with_ip(64, &code[start..], symbol.address(), DecoderOptions::NONE)
}

/// The bytes that the function reserves on the stack, besides saved registers.
fn stack_bytes(file: &object::File<'_>, function: &str) -> u64 {
    disassemble(file, function)
        .into_iter()
        .take_while(|instruction| instruction.flow_control() != FlowControl::Return)
        .find(|instruction| {
            instruction.mnemonic() == Mnemonic::Sub
                && instruction.op0_register() == iced_x86::Register::RSP
        })
        .map_or(0, |instruction| instruction.immediate(1))
}

fn fast_path(file: &object::File<'_>, function: &str) -> FastPath {
    path(file, function, None, false).unwrap_or_else(|error| panic!("{error}"))
}

/// One round of the function's only loop.
fn loop_path(file: &object::File<'_>, function: &str) -> FastPath {
    let code = instructions(file, function);
    let is_jump = |instruction: &&Instruction| {
        let flow = instruction.flow_control();
        matches!(flow, FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch)
    };
    let back = code.iter().filter(is_jump).filter(|jump| jump.near_branch_target() <= jump.ip());
    let starts: BTreeSet<u64> = back.map(Instruction::near_branch_target).collect();
    // The slow path jumps back too, into the middle of the loop. A path from there leaves the loop.
    let round = |start| path(file, function, Some(start), false).ok();
    let mut rounds: Vec<FastPath> = starts.into_iter().filter_map(round).collect();
    assert_eq!(rounds.len(), 1, "{function} has one loop");
    rounds.remove(0)
}

/// The path from the function's start to its `ret`, or of a loop, from this start until the jump
/// back to it. With `calls`, the path may call other functions, which are not looked into.
///
/// # Errors
/// If there is something else than a fast path.
fn path(
    file: &object::File<'_>,
    function: &str,
    loop_start: Option<u64>,
    calls: bool,
) -> Result<FastPath, String> {
    let mut decoder = disassemble(file, function);
    let (start, size) = (symbol(file, function).address(), symbol(file, function).size());
    if let Some(from) = loop_start {
        decoder.set_ip(from);
        decoder.set_position((from - start) as usize).expect("inside the function");
    }
    let mut info = InstructionInfoFactory::new();
    let mut path = FastPath::default();
    loop {
        let instruction = decoder.decode();
        match instruction.flow_control() {
            FlowControl::Return if loop_start.is_none() => return Ok(path),
            FlowControl::Next | FlowControl::ConditionalBranch => {}
            FlowControl::Call | FlowControl::IndirectCall if calls => {}
            FlowControl::UnconditionalBranch
                if (instruction.next_ip()..start + size)
                    .contains(&instruction.near_branch_target()) =>
            {
                let target = instruction.near_branch_target();
                decoder.set_ip(target);
                decoder.set_position((target - start) as usize).expect("inside the function");
            }
            other => {
                return Err(format!(
                    "{function}: a fast path without calls, but here is {other:?}"
                ));
            }
        }
        path.instructions += 1;
        if path.first_jump == 0 && instruction.flow_control() == FlowControl::ConditionalBranch {
            path.first_jump = path.instructions;
        }
        // An exchange with memory locks without saying so.
        let exchanges = instruction.mnemonic() == Mnemonic::Xchg
            && instruction.op_kinds().any(|kind| kind == iced_x86::OpKind::Memory);
        path.locked += usize::from(instruction.has_lock_prefix() || exchanges);
        if instruction.mnemonic() != Mnemonic::Push {
            path.written += bytes_written(info.info(&instruction));
        }
        if loop_start == Some(instruction.near_branch_target()) {
            return Ok(path);
        }
    }
}

fn instructions(file: &object::File<'_>, function: &str) -> Vec<Instruction> {
    let end = symbol(file, function).address() + symbol(file, function).size();
    disassemble(file, function).into_iter().take_while(|next| next.ip() < end).collect()
}

/// The symbols of the functions that a function calls, at its end by a jump too.
fn called_functions(file: &object::File<'_>, function: &str) -> Vec<String> {
    let code = instructions(file, function);
    let inside = code[0].ip()..code[code.len() - 1].next_ip();
    let name_of = |address: u64| {
        let mut symbols = file.symbols();
        let found = symbols.find(|symbol| symbol.is_definition() && symbol.address() == address);
        let name = found.and_then(|symbol| symbol.name().ok().map(String::from));
        name.unwrap_or_else(|| format!("{address:#x}"))
    };
    // A call through a table of addresses, which the loader relocates.
    let target_at = |entry: u64| {
        let relocation = file.dynamic_relocations()?.find(|(at, _)| *at == entry)?.1;
        Some(relocation.addend() as u64)
    };
    let mut called = Vec::new();
    for instruction in &code {
        let target = match instruction.flow_control() {
            FlowControl::Call
            | FlowControl::ConditionalBranch
            | FlowControl::UnconditionalBranch => Some(instruction.near_branch_target()),
            FlowControl::IndirectCall | FlowControl::IndirectBranch
                if instruction.is_ip_rel_memory_operand() =>
            {
                target_at(instruction.ip_rel_memory_address())
            }
            FlowControl::IndirectCall | FlowControl::IndirectBranch => None,
            _ => continue,
        };
        if !target.is_some_and(|target| inside.contains(&target)) {
            called.push(target.map_or_else(|| format!("{:?}", instruction.mnemonic()), name_of));
        }
    }
    called
}

/// The instructions of the function's longest path, without those of functions that it calls. `None` if
/// it has a loop.
fn longest_path(file: &object::File<'_>, function: &str) -> Option<usize> {
    let code = instructions(file, function);
    let end = code.last()?.next_ip();
    // The length of the longest path from each instruction. A jump back to code that was not yet looked
    // at is resolved in a later round; after as many rounds as there are jumps only loops are left.
    let mut longest: HashMap<u64, usize> = HashMap::new();
    for _ in 0..code.len() {
        let known = longest.len();
        for instruction in code.iter().rev() {
            let flow = instruction.flow_control();
            let jumps =
                matches!(flow, FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch);
            let ends = matches!(
                flow,
                FlowControl::Return
                    | FlowControl::IndirectBranch
                    | FlowControl::UnconditionalBranch
                    | FlowControl::Exception
            );
            let target = jumps.then(|| instruction.near_branch_target());
            let inside = target.filter(|target| (code[0].ip()..end).contains(target));
            let next = (!ends).then_some(instruction.next_ip()).filter(|next| *next < end);
            let after: Option<Vec<usize>> =
                inside.into_iter().chain(next).map(|ip| longest.get(&ip).copied()).collect();
            if let Some(after) = after {
                longest.insert(instruction.ip(), 1 + after.into_iter().max().unwrap_or(0));
            }
        }
        if longest.len() == known {
            break;
        }
    }
    longest.get(&code[0].ip()).copied()
}

fn bytes_written(info: &InstructionInfo) -> usize {
    let writes = |access| matches!(access, OpAccess::Write | OpAccess::ReadWrite);
    let written = info.used_memory().iter().filter(|memory| writes(memory.access()));
    written.map(|memory| memory.memory_size().size()).sum()
}

#[test]
fn fast_paths_have_no_more_instructions_than_agreed_none_locked_and_write_each_value_once() {
    let binary = build_example("fast_paths", &[]);
    let file = object::File::parse(&*binary).unwrap();
    for (function, most) in GOLDEN {
        let FastPath { instructions: count, locked, .. } = fast_path(&file, function);
        println!("{function}: {count} instructions, {locked} locked");
        assert!(count <= most, "{function}: {count} instructions instead of {most}");
        assert_eq!(locked, 0, "{function} has a locked instruction");
    }
    for (function, most, may_call) in LOOPLESS {
        let count = longest_path(&file, function);
        let called = called_functions(&file, function);
        println!("{function}: at most {count:?} instructions, calls {called:?}");
        assert!(count.is_some_and(|count| count <= most), "{function}: {count:?}, not {most}");
        let is_known = |name: &String| may_call.iter().any(|known| name.contains(known));
        assert!(called.iter().all(is_known), "{function} calls {called:?}, not only {may_call:?}");
    }
    for (function, most, written_once) in LOOPS {
        let FastPath { instructions: count, written, .. } = loop_path(&file, function);
        println!("{function}: {count} instructions and {written} bytes an object");
        assert!(count <= most, "{function}: {count} instructions instead of {most}");
        assert_eq!(written, written_once, "{function}: a register is spilled");
    }
    let stack = stack_bytes(&file, "golden_reap_alloc_512_bytes");
    println!("golden_reap_alloc_512_bytes: {stack} bytes of stack");
    assert!(stack < 512, "the value is constructed in its block, not on the stack: {stack} bytes");
    for (function, most) in GLOBAL_ALLOC {
        let outside = fast_path(&file, function).first_jump;
        println!("{function}: {outside} instructions outside of a pool");
        assert!(outside <= most, "{function}: {outside} instructions instead of {most}");
    }
    let mut wrong = Vec::new();
    let values = VALUES.into_iter().map(|row| (row, false));
    let behind_calls = VALUES_BEHIND_CALLS.into_iter().map(|row| (row, true));
    for ((name, own), calls) in values.chain(behind_calls) {
        let words = SIZES.map(|size| (size, ""));
        let filled = FILLED_SIZES.map(|size| (size, "_filled"));
        for (size, suffix) in words.into_iter().chain(filled) {
            let function = format!("golden_{name}_{size}{suffix}");
            match path(&file, &function, None, calls) {
                Ok(FastPath { instructions, written, .. }) => {
                    println!("{function}: {instructions} instructions, {written} bytes");
                    if written != size + own {
                        wrong.push(format!("{function} writes {written} bytes"));
                    }
                }
                Err(error) => wrong.push(error),
            }
        }
    }
    assert!(wrong.is_empty(), "values are not written once:\n{}", wrong.join("\n"));
}

#[test]
fn arenas_and_lists_have_the_same_fast_paths_without_the_standard_library() {
    let binary = build_example("fast_paths_without_std", &["--no-default-features"]);
    let file = object::File::parse(&*binary).unwrap();
    for (function, most) in GOLDEN.into_iter().filter(|(name, _)| WITHOUT_STD.contains(name)) {
        let FastPath { instructions: count, locked, .. } = fast_path(&file, function);
        println!("{function}: {count} instructions, {locked} locked");
        assert!(count <= most, "{function}: {count} instructions instead of {most}");
        assert_eq!(locked, 0, "{function} has a locked instruction");
    }
    for (function, most, written_once) in LOOPS {
        let FastPath { instructions: count, written, .. } = loop_path(&file, function);
        println!("{function}: {count} instructions and {written} bytes an object");
        assert!(count <= most, "{function}: {count} instructions instead of {most}");
        assert_eq!(written, written_once, "{function}: a register is spilled");
    }
    let written = fast_path(&file, "golden_arena_alloc_64").written;
    assert_eq!(written, 64 + 8, "the value is written once");
}
