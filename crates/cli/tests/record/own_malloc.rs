//! Programs with a malloc in their executable: nothing of theirs is recorded, and nothing hangs.

use crate::programs::{Program, compiled, mine, record};
use std::path::Path;
use std::process::Command;

/// A malloc that takes locks and calls the kernel while it initialises itself, and whose locks a
/// fork takes first.
const OWN: &str = r#"
#include <sys/syscall.h>
static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER, lock = PTHREAD_MUTEX_INITIALIZER;
static volatile int started;
static char room[1 << 22];
static size_t used;
static void before_fork(void) { pthread_mutex_lock(&lock); }
static void after_fork(void) { pthread_mutex_unlock(&lock); }
static void start(void) {
    if (started) return;
    if (pthread_mutex_trylock(&starting)) pthread_mutex_lock(&starting);
    if (!started) {
        syscall(SYS_gettid);
        pthread_atfork(before_fork, after_fork, after_fork);
        started = 1;
    }
    pthread_mutex_unlock(&starting);
}
EXPORT void *malloc(size_t n) {
    start();
    pthread_mutex_lock(&lock);
    void *p = room + used;
    used += (n + 31) & ~15ul;
    pthread_mutex_unlock(&lock);
    return p;
}
EXPORT void *calloc(size_t n, size_t m) { return memset(malloc(n * m), 0, n * m); }
EXPORT void *realloc(void *p, size_t n) {
    void *q = malloc(n);
    return p ? memmove(q, p, n) : q;
}
EXPORT void free(void *p) { (void)p; }
"#;

/// A library that allocates before the recorder is initialised.
const LIBRARY: &str = "
__attribute__((constructor)) static void first(void) { void *p = malloc(10); KEEP(p); free(p); }
";

/// Forks, with threads beside, and ends itself if that takes too long.
const FORKS: &str = r#"
static void *allocates(void *count) {
    for (int i = 0; i < *(int *)count; i++) { void *p = malloc(100); KEEP(p); free(p); }
    return 0;
}
int main(void) {
    alarm(30);
    int count = 1000;
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], 0, allocates, &count);
    for (int i = 0; i < 3; i++) {
        pid_t child = fork();
        if (!child) { alarm(30); void *p = malloc(100); KEEP(p); free(p); _exit(0); }
        int status;
        waitpid(child, &status, 0);
        if (status) return 9;
    }
    for (int i = 0; i < 4; i++) pthread_join(threads[i], 0);
    puts("forked");
    return 0;
}
"#;

fn assert_runs(program: &Program, what: &str) {
    let recorded = record(program);
    assert_eq!(recorded.status.code(), Some(0), "{what}: {}", recorded.errors);
}

#[test]
fn a_program_with_a_malloc_of_its_own_forks_as_without_the_recorder() {
    let Some(library) = compiled("libfirst.so", LIBRARY, &["-shared", "-fPIC"]) else { return };
    let exports =
        [("own-exported", "__attribute__((visibility(\"default\")))"), ("own-hidden", "")];
    for (name, export) in exports {
        let source = format!("#define EXPORT {export}\n{OWN}{FORKS}");
        let visible = if export.is_empty() { "-fvisibility=hidden" } else { "-rdynamic" };
        let flags = ["-O1", "-pthread", visible, "-Wl,--no-as-needed", library.path()];
        let Some(program) = compiled(name, &source, &flags) else { return };
        let recorded = record(&program);
        assert_eq!(recorded.status.code(), Some(0), "{name}: {}", recorded.errors);
        if !export.is_empty() {
            assert!(recorded.errors.contains("malloc of its own"), "{}", recorded.errors);
            assert!(
                recorded.errors.contains("1 process with a malloc in the executable"),
                "{}",
                recorded.errors
            );
            let processes = recorded.processes();
            assert!(processes[0].end.as_ref().unwrap().own_malloc && recorded.end(0).events == 0);
        }
    }
}

/// The archives of mallocs that distributions have, and what else they need.
const ARCHIVES: [(&str, &str); 3] = [
    ("libjemalloc.a", "libjemalloc-dev"),
    ("libmimalloc.a", "libmimalloc-dev"),
    ("libtcmalloc_minimal.a", "libgoogle-perftools-dev"),
];

#[test]
fn programs_that_are_linked_with_another_malloc_fork_as_without_the_recorder() {
    for (archive, package) in ARCHIVES {
        let output = Command::new("cc").arg(format!("-print-file-name={archive}")).output();
        let Ok(output) = output else { return };
        let path = String::from_utf8(output.stdout).unwrap().trim().to_owned();
        if !Path::new(&path).is_absolute() {
            eprintln!("SKIPPED: there is no {archive} (package {package})");
            continue;
        }
        // Libraries of C++ allocate before the recorder is initialised.
        let link = format!("-Wl,--whole-archive,{path},--no-whole-archive");
        for export in ["-rdynamic", "-Wl,--exclude-libs,ALL"] {
            let flags = ["-O1", "-pthread", export, &link, "-lstdc++", "-lm"];
            let name = format!("{archive}{}", if export == "-rdynamic" { "-exported" } else { "" });
            if let Some(program) = compiled(&name, FORKS, &flags) {
                assert_runs(&program, &name);
            }
        }
    }
}

#[test]
fn a_child_with_a_malloc_of_its_own_is_named_and_its_parent_is_recorded() {
    let source = format!(
        "#define EXPORT __attribute__((visibility(\"default\")))\n{OWN}\nint main(void) {{ return 0; }}"
    );
    let Some(own) = compiled("named-child", &source, &["-O1", "-pthread", "-rdynamic"]) else {
        return;
    };
    let source = format!(
        "int main(void) {{ void *p = malloc(430001); KEEP(p); free(p); return system(\"{}\"); }}",
        own.path()
    );
    let Some(parent) = compiled("parent", &source, &["-O1"]) else { return };
    let recorded = record(&parent);
    assert_eq!(recorded.status.code(), Some(0), "{}", recorded.errors);
    assert_eq!(mine(&recorded, 430_001, 430_002).len(), 1);
    assert!(recorded.errors.contains("named-child"), "{}", recorded.errors);
}
