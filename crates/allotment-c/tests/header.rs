//! Each header compiles alone and without warnings, and `allotment.h` declares what the libraries
//! export.

mod support;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use support::{
    Compiler, files, installation, is_installed, package, report_of, scratch, skip, with_limits,
};

/// The headers that programs include. Those in a directory are parts of these.
fn headers() -> BTreeSet<String> {
    let mut names = files(&package().join("include"));
    names.retain(|name| !name.contains('/'));
    names
}

/// Compiles a source with this text.
fn check_compiles(compiler: Compiler, name: &str, source: &str, flags: &[&str]) {
    let file = scratch().join(name);
    std::fs::write(&file, source).expect("the target directory can be written");
    let output = Command::new(compiler.command(&file))
        .args(["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror", "-fsyntax-only", "-I"])
        .arg(package().join("include"))
        .args(flags)
        .arg(&file)
        .output()
        .expect("the compiler was found");
    assert!(output.status.success(), "{compiler:?} {flags:?} {name}: {}", report_of(&output));
}

fn compilers() -> impl Iterator<Item = Compiler> {
    [Compiler::Gcc, Compiler::Clang].into_iter().filter(|compiler| {
        let is_installed = compiler.is_installed();
        if !is_installed {
            skip(&format!("headers by {compiler:?}"), "it is not installed");
        }
        is_installed
    })
}

#[test]
fn each_header_compiles_alone_and_twice_in_each_language() {
    for compiler in compilers() {
        for name in headers() {
            let source = format!("#include <{name}>\n#include <{name}>\n");
            let stem = name.replace('.', "_");
            if !name.ends_with(".hpp") {
                for standard in ["-std=c11", "-std=c17", "-std=gnu11"] {
                    let more =
                        ["-Wconversion", "-Wstrict-prototypes", "-Wc++-compat", "-Wcast-qual"];
                    let file = format!("{stem}_alone.c");
                    check_compiles(compiler, &file, &source, &[&[standard], &more[..]].concat());
                    check_compiles(compiler, &file, &source, &[standard, "-DALLOT_OUT_OF_LINE"]);
                }
            }
            let file = format!("{stem}_alone.cpp");
            for standard in ["-std=c++17", "-std=c++20"] {
                check_compiles(compiler, &file, &source, &[standard, "-Wconversion"]);
            }
            check_compiles(compiler, &file, &source, &["-std=c++17", "-DALLOT_OUT_OF_LINE"]);
            // GCC warns on processors without alignment traps only if it is strict.
            let cast_align = match compiler {
                Compiler::Gcc => "-Wcast-align=strict",
                Compiler::Clang => "-Wcast-align",
            };
            check_compiles(compiler, &file, &source, &["-std=c++17", cast_align]);
            if !name.ends_with(".hpp") {
                let file = format!("{stem}_alone.c");
                check_compiles(compiler, &file, &source, &["-std=c11", cast_align]);
            }
        }
    }
}

/// The text of a header without comments and preprocessor lines.
fn without_comments(header: &str) -> String {
    let mut rest = header;
    let mut kept = String::new();
    while let Some(start) = rest.find("/*") {
        kept.push_str(&rest[..start]);
        kept.push(' ');
        let end = rest[start..].find("*/").expect("the comment ends");
        rest = &rest[start + end + 2..];
    }
    kept.push_str(rest);
    let mut lines = Vec::new();
    let mut continued = false;
    for line in kept.lines() {
        let skipped = continued || line.trim_start().starts_with('#');
        continued = skipped && line.ends_with('\\');
        if !skipped {
            lines.push(line);
        }
    }
    lines.join("\n")
}

/// The functions that a header declares and does not define.
fn declared(header: &str) -> BTreeSet<String> {
    let text = without_comments(header);
    let text = text.replace("extern \"C\" {", "");
    let mut found = BTreeSet::new();
    let mut depth = 0;
    let mut statement = String::new();
    for letter in text.chars() {
        match letter {
            '{' => depth += 1,
            '}' => {
                // A brace that no other one opened ends the block of C linkage.
                depth = i32::max(depth - 1, 0);
                // The body of a function ends its statement. That of a structure continues to the
                // semicolon.
                if depth == 0
                    && statement.contains('(')
                    && !statement.trim_start().starts_with("typedef")
                {
                    statement.clear();
                }
            }
            ';' if depth == 0 => {
                let start = statement.trim();
                let defines = start.starts_with("typedef") || start.starts_with("static");
                if let (false, Some((before, _))) = (defines, start.split_once('(')) {
                    let name = before.rsplit(|c: char| !c.is_alphanumeric() && c != '_').next();
                    found.insert(name.unwrap_or_default().to_owned());
                }
                statement.clear();
            }
            _ if depth == 0 => statement.push(letter),
            _ => {}
        }
    }
    found
}

/// The functions that a header defines inline and the library defines as symbols.
fn inline_symbols(header: &str) -> BTreeSet<String> {
    let text = without_comments(header);
    let definitions = text.lines().filter_map(|line| line.strip_prefix("ALLOT_NETDATA_INLINE "));
    definitions
        .filter_map(|line| line.split_once('('))
        .filter_map(|(before, _)| before.rsplit([' ', '*']).next())
        .map(str::to_owned)
        .collect()
}

/// The names that `nm` lists, without their versions.
fn exported(arguments: &[&str], library: &Path) -> BTreeSet<String> {
    let output = Command::new("nm").args(arguments).arg(library).output().expect("nm was found");
    assert!(output.status.success(), "{}", report_of(&output));
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace().skip(1);
            let kind = words.next()?;
            let name = words.next()?;
            // The version node is an absolute symbol.
            (kind != "A").then(|| name.split('@').next().unwrap_or(name).to_owned())
        })
        .collect()
}

#[test]
fn the_declarations_of_a_header_are_found() {
    let header = "
        #define CALL(x) \\
            f(x);
        #ifdef __cplusplus
        extern \"C\" {
        #endif
        /* void commented(void); */
        typedef void *callback(int);
        typedef struct pair { void (*calls)(int); int a[20]; } pair;
        callback *set(callback *it);
        pair make(void); void take(const pair *p,
            void (*visit)(pair));
        static inline int inlined(int x) { if (x) { return g(x); } return x; }
        struct other { int x; };
        int last(void);
        #ifdef __cplusplus
        }
        #endif
        ";
    let names: Vec<String> = declared(header).into_iter().collect();
    assert_eq!(names, ["last", "make", "set", "take"]);
}

/// The functions that need no memory, or whose result says what they could not do.
const NEVER_REFUSED: [&str; 69] = [
    "allot_abi",
    "allot_arena_adopt",
    "allot_arena_destroy",
    "allot_arena_free_sized",
    "allot_arena_mark",
    "allot_arena_reset",
    "allot_arena_rewind",
    "allot_arena_statistics",
    "allot_budget_destroy",
    "allot_budget_limit",
    "allot_budget_used",
    "allot_clear_error",
    "allot_current",
    "allot_free",
    "allot_free_list_adopt",
    "allot_free_list_destroy",
    "allot_free_list_free_slowly",
    "allot_free_list_live",
    "allot_free_list_statistics",
    "allot_free_list_stride",
    "allot_free_list_trim",
    "allot_free_sized",
    "allot_global",
    "allot_last_error",
    "allot_owner_of",
    "allot_pool_any_holds",
    "allot_pool_destroy",
    "allot_pool_free_sized",
    "allot_pool_leave",
    "allot_pool_reference",
    "allot_pool_statistics",
    "allot_pool_trim",
    "allot_reap_adopt",
    "allot_reap_destroy",
    "allot_reap_free",
    "allot_reap_free_sized",
    "allot_reap_reset",
    "allot_reap_statistics",
    "allot_reap_trim",
    "allot_recycler_cached_bytes",
    "allot_recycler_limit",
    "allot_recycler_set_limit",
    "allot_recycler_set_policy",
    "allot_recycler_trim",
    "allot_ref_is_usable",
    "allot_report_json",
    "allot_report_text",
    "allot_sealed_destroy",
    "allot_sealed_get",
    "allot_sealed_leak",
    "allot_sealed_statistics",
    "allot_set_failure_handler",
    "allot_set_hardened",
    "allot_slab_destroy",
    "allot_slab_flush",
    "allot_slab_free",
    "allot_slab_free_anywhere",
    "allot_slab_free_many",
    "allot_slab_handle_destroy",
    "allot_slab_handle_free_slowly",
    "allot_slab_page_statistics",
    "allot_slab_set_packing",
    "allot_slab_slot_size",
    "allot_slab_statistics",
    "allot_slab_trim",
    "allot_source_destroy",
    "allot_source_file_offset",
    "allot_usable_size",
    "allot_version",
];

#[test]
fn every_function_that_can_be_refused_has_a_twin_with_try() {
    let header =
        std::fs::read_to_string(package().join("include/allotment.h")).expect("there is a header");
    let declared = declared(&header);
    let has_twin = |name: &str| {
        declared.iter().any(|twin| twin.replacen("try_", "", 1) == name && twin != name)
    };
    let without: Vec<_> = declared
        .iter()
        .filter(|name| !name.contains("_try_") && !has_twin(name))
        .map(String::as_str)
        .collect();
    assert_eq!(without, NEVER_REFUSED);
}

#[test]
fn the_headers_declare_what_the_libraries_export_and_nothing_else() {
    let read = |name: &str| {
        std::fs::read_to_string(package().join("include").join(name)).expect("there is a header")
    };
    let mut declared = declared(&read("allotment.h"));
    assert!(declared.contains("allot_version") && declared.contains("allot_arena_alloc_slowly"));
    for name in ["aral.h", "list.h", "onewayalloc.h"] {
        let header = read(&format!("allotment/{name}"));
        declared.extend(self::declared(&header));
        declared.extend(inline_symbols(&header));
    }
    // A variable.
    declared.insert("allot_netdata_thread".to_owned());
    assert!(declared.contains("aral_mallocz") && declared.contains("list_free"));
    if !is_installed("nm") {
        return skip("the header against the libraries", "nm (binutils) is not installed");
    }
    let shared = exported(&["-D", "--defined-only"], &installation().shared());
    let archive = exported(&["-g", "--defined-only"], &installation().archive());
    for (library, exported) in [("shared", shared), ("static", archive)] {
        let missing: Vec<_> = declared.difference(&exported).collect();
        let more: Vec<_> = exported.difference(&declared).collect();
        assert!(missing.is_empty(), "declared, but not in the {library} library: {missing:#?}");
        assert!(more.is_empty(), "in the {library} library, but not declared: {more:#?}");
    }
}

#[test]
fn a_c_compiler_finds_every_field_at_the_offset_that_the_library_uses() {
    let numbers = allotment_c::header_numbers::all();
    let source = scratch().join("numbers.c");
    let mut text = "#include <allotment.h>\n#include <stdio.h>\nint main(void)\n{\n".to_owned();
    for (expression, _) in &numbers {
        text.push_str(&format!("    printf(\"%zu\\n\", (size_t)({expression}));\n"));
    }
    text.push_str("}\n");
    std::fs::write(&source, text).expect("the target directory can be written");
    for compiler in compilers() {
        let program = scratch().join("numbers");
        let include = format!("-I{}", package().join("include").display());
        compiler.build(&source, &program, &[include]).unwrap_or_else(|error| panic!("{error}"));
        let output = with_limits(&program).output().expect("there is a shell");
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let from_c: Vec<&str> = printed.lines().collect();
        assert_eq!(from_c.len(), numbers.len());
        let wrong: Vec<_> = numbers
            .iter()
            .zip(from_c)
            .filter(|((_, in_rust), in_c)| in_c.parse() != Ok(*in_rust))
            .collect();
        assert!(wrong.is_empty(), "(expression, Rust's), C's: {wrong:?}");
    }
}
