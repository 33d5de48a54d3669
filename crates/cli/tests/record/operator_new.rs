//! An `operator new` that comes with an allocator's malloc, and isn't made of it, is reported where
//! a recording needs it.

use crate::programs::{Program, Recorded, compiled_cpp, mine, record, record_with};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};

/// Blocks from `new`, from an over-aligned one, and from `malloc`, of sizes of their own.
const PROGRAM: &str = "
#include <new>
struct alignas(256) Wide { char bytes[768]; };
int main() {
    for (int i = 0; i < 1000; i++) {
        char *made = new char[520001]; KEEP(made);
        Wide *wide = new Wide; KEEP(wide);
        void *p = malloc(520002); KEEP(p);
        free(p); delete wide; delete[] made;
    }
    return 0;
}";

const LIBRARIES: [&str; 3] = ["libmimalloc.so.2", "libjemalloc.so.2", "libtcmalloc_minimal.so.4"];

/// Which allocators the loader finds here.
fn installed() -> Vec<&'static str> {
    let is_there = |name: &&str| {
        let output = Command::new("true").env("LD_PRELOAD", name).output().unwrap();
        output.status.success() && output.stderr.is_empty()
    };
    let found: Vec<_> = LIBRARIES.into_iter().filter(is_there).collect();
    if found.is_empty() {
        eprintln!("skipped: none of {} is installed", LIBRARIES.join(", "));
    }
    found
}

fn record_preloaded(program: &Program, library: &str, arguments: &[&str]) -> Recorded {
    let recorded = record_with(program, arguments, |command| {
        command.env("LD_PRELOAD", library);
    });
    assert_eq!(recorded.status.code(), Some(0), "{library}: {}", recorded.errors);
    recorded
}

fn lines_about_it(recorded: &Recorded) -> usize {
    recorded.errors.lines().filter(|line| line.contains("operator new is ")).count()
}

/// That people, the recording and what is made of it say so, whose it is and what to do.
fn assert_is_told(recorded: &Recorded, library: &str) {
    let errors = &recorded.errors;
    assert_eq!(lines_about_it(recorded), 1, "{library}: {errors}");
    assert!(errors.contains("record it with the C library's malloc"), "{library}: {errors}");
    assert!(errors.contains("lost: what operator new gave in 1 process"), "{library}: {errors}");
    let path = recorded.end(0).new_unseen.as_ref().unwrap();
    assert!(path.contains(library) && errors.contains(path), "{library}, {path}: {errors}");
    let told = warnings(&recorded.file, &[]).into_iter().filter(|note| note.contains(path)).count();
    assert_eq!(told, 1, "{library}");
}

fn assert_is_not_told(recorded: &Recorded, library: &str) {
    assert_eq!(recorded.end(0).new_unseen, None, "{library}");
    assert_eq!(lines_about_it(recorded), 0, "{library}: {}", recorded.errors);
    assert!(recorded.errors.contains("lost: nothing"), "{library}: {}", recorded.errors);
    let notes = warnings(&recorded.file, &["--check"]);
    assert!(!notes.iter().any(|note| note.contains("operator new")), "{library}: {notes:?}");
}

/// The warnings of the findings.
fn warnings(recording: &Path, flags: &[&str]) -> Vec<String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_allot"));
    command.args(["analyse", "--json"]).args(flags).arg(recording);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let findings: Value = serde_json::from_slice(&output.stdout).unwrap();
    let notes = findings["notes"].as_array().unwrap();
    let warnings = notes.iter().filter(|note| note["warning"] == true);
    warnings.map(|note| note["text"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_preloaded_allocator_s_own_operator_new_is_told_in_one_line_and_in_the_findings() {
    let Some(program) = compiled_cpp("news", PROGRAM, &["-O1"]) else { return };
    for library in installed() {
        let recorded = record_preloaded(&program, library, &[]);
        assert_is_told(&recorded, library);
        assert_eq!(mine(&recorded, 520_001, 520_002).len(), 0, "{library}");
        assert_eq!(mine(&recorded, 520_002, 520_003).len(), 1000, "{library}");
    }
}

#[test]
fn a_linked_allocator_s_own_operator_new_is_told_in_the_summary_s_json() {
    for library in installed() {
        let flag = format!("-l:{library}");
        let flags = ["-O1", "-Wl,--no-as-needed", &*flag];
        let Some(program) = compiled_cpp("linked-news", PROGRAM, &flags) else { return };
        let recording = format!("{}.allot", program.path());
        let mut command = Command::new(env!("CARGO_BIN_EXE_allot"));
        command.args(["record", "--json", "-o", &recording, "--", program.path()]);
        let output = command.stdin(Stdio::null()).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{library}: {errors}");
        assert_eq!(errors.matches("operator new is ").count(), 1, "{library}: {errors}");
        let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
        let unseen = &summary["new_unseen"];
        assert!(unseen["library"].as_str().unwrap().contains(library), "{summary:#}");
        assert!(errors.contains(unseen["why"].as_str().unwrap()), "{summary:#}");
        assert_eq!(unseen["processes"], 1, "{summary:#}");
    }
}

#[test]
fn the_c_plus_plus_library_s_operator_new_is_seen_and_nothing_is_told() {
    let Some(program) = compiled_cpp("plain-news", PROGRAM, &["-O1"]) else { return };
    let recorded = record(&program);
    assert_is_not_told(&recorded, "no library");
    assert_eq!(mine(&recorded, 520_001, 520_003).len(), 2000);
    assert_eq!(
        mine(&recorded, 768, 769).iter().filter(|made| made.flags.alignment() == 256).count(),
        1000
    );
}

#[test]
fn a_program_s_own_operator_new_above_malloc_is_seen_and_nothing_is_told() {
    let source = "
#include <new>
void *operator new(size_t size) { void *p = malloc(size); if (!p) abort(); return p; }
void operator delete(void *p) noexcept { free(p); }
void operator delete(void *p, size_t) noexcept { free(p); }
struct Large { char bytes[530001]; };
int main() {
    for (int i = 0; i < 1000; i++) { Large *made = new Large; KEEP(made); delete made; }
    return 0;
}";
    // With an operator new of the program alone, and with one that all libraries use.
    for flags in [&["-O1"][..], &["-O1", "-rdynamic"]] {
        let Some(program) = compiled_cpp("own-new", source, flags) else { return };
        for library in installed() {
            let recorded = record_preloaded(&program, library, &[]);
            assert_is_not_told(&recorded, library);
            assert_eq!(mine(&recorded, 530_001, 530_002).len(), 1000, "{library}");
            assert_eq!(recorded.unknown_frees(0).len(), 0, "{library}");
        }
    }
}

#[test]
fn what_the_c_plus_plus_library_makes_for_a_program_is_told_too() {
    // Nothing is inlined, so the program itself calls no `operator new`.
    let source = "
#include <string>
int main(int count, char **words) {
    std::string text(words[0]);
    for (int i = 0; i < 100; i++) text += text.substr(0, 1000);
    return text.size() < 1000;
}";
    let Some(program) = compiled_cpp("strings", source, &["-O0"]) else { return };
    for library in installed() {
        assert_is_told(&record_preloaded(&program, library, &[]), library);
    }
}

#[test]
fn a_program_in_c_is_told_only_once_it_has_loaded_what_needs_an_operator_new() {
    let library =
        "extern \"C\" void work() { char *made = new char[540001]; KEEP(made); delete[] made; }";
    let flags = ["-O1", "-shared", "-fPIC"];
    let Some(later) = compiled_cpp("libneeds-new.so", library, &flags) else { return };
    let program = program!(
        "loads-later",
        "
int main(int count, char **words) {
    void *p = malloc(540002); KEEP(p); free(p);
    if (count < 2) return 0;
    void *library = dlopen(words[1], RTLD_NOW);
    if (!library) return 1;
    ((void (*)(void))dlsym(library, \"work\"))();
    return 0;
}"
    );
    for library in installed() {
        assert_is_not_told(&record_preloaded(&program, library, &[]), library);
        assert_is_told(&record_preloaded(&program, library, &[later.path()]), library);
    }
}
