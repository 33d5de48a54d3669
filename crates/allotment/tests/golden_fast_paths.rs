//! The fast paths, disassembled: how many instructions, and none of them locked.
//!
//! The functions are those of `examples/fast_paths.rs`, built here with optimisation. An instruction counts
//! if it runs when every conditional jump falls through, up to the `ret`, which is not counted.
#![cfg(target_arch = "x86_64")]

use std::path::PathBuf;
use std::process::Command;

use iced_x86::{Decoder, DecoderOptions, FlowControl};
use object::{Object, ObjectSection, ObjectSymbol};

/// (function, most instructions)
const GOLDEN: [(&str, usize); 24] = [
    ("golden_arena_alloc_u32", 11),
    ("golden_arena1_alloc_u32", 17),
    ("golden_arena_try_alloc_u32", 13),
    ("golden_slab_alloc", 12),
    ("golden_slab_free", 19),
    ("golden_handle_alloc", 7),
    ("golden_handle_free", 14),
    ("golden_slab_box_drop", 18),
    ("golden_list_alloc", 6),
    ("golden_list_free", 5),
    ("golden_reap_alloc", 15),
    ("golden_reap_alloc_40", 6),
    ("golden_reap_free", 13),
    ("golden_pool_alloc", 17),
    ("golden_pool_free", 15),
    ("golden_pool_ref_alloc", 29),
    ("golden_pool_ref_free", 29),
    ("golden_routed_alloc", 18),
    ("golden_routed_free", 29),
    ("golden_sealed_number", 2),
    ("golden_sealed_text", 3),
    ("golden_published_read", 30),
    ("golden_reading_drop", 17),
    ("golden_published_copy", 32),
];

/// (function, most instructions before the global allocator beneath gets its turn, the jump there included)
const ROUTED: [(&str, usize); 2] = [("golden_routed_alloc", 4), ("golden_routed_free", 6)];

/// Builds the library and the example in a folder of their own: the build that runs this test may hold the
/// lock of the usual one, and the example needs none of the dev-dependencies that cargo would build for it.
fn build_example() -> Vec<u8> {
    let target = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("golden");
    let release = target.join("release");
    let manifest = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    run(Command::new(env!("CARGO"))
        .args(["build", "--release", "--lib", "--target-dir"])
        .arg(&target)
        .arg("--manifest-path")
        .arg(manifest.join("Cargo.toml")));
    let binary = target.join("fast_paths");
    run(Command::new(std::env::var_os("RUSTC").unwrap_or("rustc".into()))
        .args(["--edition=2024", "-Copt-level=3", "-Ccodegen-units=1", "-o"])
        .arg(&binary)
        .arg("--extern")
        .arg(format!("allotment={}", release.join("liballotment.rlib").display()))
        .arg("-L")
        .arg(format!("dependency={}", release.join("deps").display()))
        .arg(manifest.join("examples/fast_paths.rs")));
    std::fs::read(binary).expect("the example is there")
}

/// Without the flags of the build around it: instrumentation would be counted too.
fn run(command: &mut Command) {
    let status = command
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("CARGO_INCREMENTAL")
        .env_remove("CARGO_BUILD_TARGET")
        .status()
        .expect("the toolchain runs");
    assert!(status.success(), "{command:?}");
}

/// The instructions from the function's start to its `ret`, conditional jumps not taken: how many, and
/// how many with a lock prefix. And how many up to the first conditional jump, with it.
fn fast_path(file: &object::File<'_>, function: &str) -> (usize, usize, usize) {
    let symbol = file
        .symbols()
        .find(|symbol| symbol.name() == Ok(function))
        .unwrap_or_else(|| panic!("{function} is in the symbol table"));
    let section = file.section_by_index(symbol.section_index().unwrap()).unwrap();
    let code = section.data().unwrap();
    let start = (symbol.address() - section.address()) as usize;
    let mut decoder = Decoder::with_ip(64, &code[start..], symbol.address(), DecoderOptions::NONE);
    let (mut count, mut locked, mut first_jump) = (0, 0, 0);
    loop {
        let instruction = decoder.decode();
        match instruction.flow_control() {
            FlowControl::Return => return (count, locked, first_jump),
            FlowControl::Next | FlowControl::ConditionalBranch => {}
            other => panic!("{function}: a fast path without calls, but here is {other:?}"),
        }
        count += 1;
        if first_jump == 0 && instruction.flow_control() == FlowControl::ConditionalBranch {
            first_jump = count;
        }
        // An exchange with memory locks without saying so.
        let exchanges = instruction.mnemonic() == iced_x86::Mnemonic::Xchg
            && instruction.op_kinds().any(|kind| kind == iced_x86::OpKind::Memory);
        locked += usize::from(instruction.has_lock_prefix() || exchanges);
    }
}

#[test]
fn fast_paths_have_no_more_instructions_than_agreed_and_no_locked_one() {
    let binary = build_example();
    let file = object::File::parse(&*binary).unwrap();
    for (function, most) in GOLDEN {
        let (count, locked, _) = fast_path(&file, function);
        println!("{function}: {count} instructions, {locked} locked");
        assert!(count <= most, "{function}: {count} instructions instead of {most}");
        assert_eq!(locked, 0, "{function} has a locked instruction");
    }
    for (function, most) in ROUTED {
        let (_, _, outside) = fast_path(&file, function);
        println!("{function}: {outside} instructions outside of a pool");
        assert!(outside <= most, "{function}: {outside} instructions instead of {most}");
    }
}
