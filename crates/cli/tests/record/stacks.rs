//! Stacks, which are those that a debugger would show.

use crate::programs::{HEAD, compiled, mine, record, record_installed, record_with};
use trace_format::EventAction;

#[test]
fn stacks_are_the_functions_that_called() {
    let source = "
__attribute__((noinline)) void *innermost(int size) { void *p = malloc(size); KEEP(p); return p; }
__attribute__((noinline)) void *middle(int size) { char room[size % 100 + 40]; KEEP(room); void *p = innermost(size); KEEP(p); return p; }
__attribute__((noinline)) void *outer(int size) { void *p = size % 2 ? middle(size) : innermost(size); KEEP(p); return p; }
int main(void) { for (int i = 0; i < 1000; i++) free(outer(880000 + i % 7)); return 0; }";
    let program = program!("stacks", source);
    let recorded = record(&program);
    let functions = program.functions();
    let events = mine(&recorded, 880_000, 880_007);
    assert_eq!(events.len(), 1000);
    for event in events {
        let names: Vec<&str> = event
            .offsets_in("stacks")
            .map(|offset| &**functions.range(..=offset).next_back().unwrap().1)
            .collect();
        let expected: &[&str] = if event.size % 2 == 1 {
            &["innermost", "middle", "outer", "main", "_start"]
        } else {
            &["innermost", "outer", "main", "_start"]
        };
        assert_eq!(names, expected);
    }
}

#[test]
fn the_unwinder_agrees_with_the_c_library_s_own() {
    let source = "
#include <execinfo.h>
static int depth(void) { void *frames[400]; return backtrace(frames, 400); }
__attribute__((noinline)) int recurse(int n) {
    if (n == 0) { int d = depth(); void *p = malloc(990000 + d); KEEP(p); free(p); return d; }
    volatile int r = recurse(n - 1); return r + 1;
}
static int compare(const void *a, const void *b) { recurse(3); return *(int *)a - *(int *)b; }
int main(void) {
    depth();
    for (int n = 0; n < 200; n += 7) recurse(n);
    int numbers[] = {3, 1, 2}; qsort(numbers, 3, sizeof *numbers, compare);
    return 0;
}";
    let recorded = record(&program!("depths", source));
    let events = mine(&recorded, 990_000, 990_400);
    assert!(events.len() > 30);
    for event in events {
        // `depth` may be a frame of its own, or part of the one that asks.
        let theirs = event.size - 990_000;
        let stack = event.stack();
        let ours = stack.len() as u64;
        assert!(
            theirs - ours <= 1,
            "backtrace() has {theirs} frames, the recording {ours}: {stack:?}"
        );
    }
}

#[test]
fn libraries_that_come_and_go_are_followed() {
    let library = |name, size: u32| {
        let source = format!(
            "{HEAD} void *give(void) {{ void *p = malloc({size}); KEEP(p); return p; }}
             __attribute__((constructor)) static void begin(void) {{ free(give()); }}"
        );
        compiled(name, &source, &["-O1", "-g", "-shared", "-fPIC"])
    };
    let (Some(first), Some(second)) = (library("first.so", 510_001), library("second.so", 510_002))
    else {
        return;
    };
    let source = "
int main(int count, char **words) {
    for (int round = 0; round < 20; round++)
        for (int i = 1; i < count; i++) {
            void *library = dlopen(words[i], RTLD_NOW);
            if (!library) return 1;
            void *(*give)(void) = (void *(*)(void))dlsym(library, \"give\");
            free(give());
            dlclose(library);
        }
    return 0;
}";
    let program = program!("plugins", source);
    let words = [first.path(), second.path()];
    let recorded = record_with(&program, &words, |_| {});
    assert_eq!(recorded.status.code(), Some(0));
    for (size, name) in [(510_001, "first.so+"), (510_002, "second.so+")] {
        let events = mine(&recorded, size, size + 1);
        assert_eq!(events.len(), 40);
        for event in events {
            let stack = event.stack();
            assert!(stack[0].starts_with(name), "{stack:?}");
        }
    }
    assert!(recorded.count(|action| matches!(action, EventAction::ModuleUnloaded(_))) >= 40);
}

#[test]
fn a_deep_recursion_is_recorded_to_a_limit() {
    let source = "
__attribute__((noinline)) long recurse(long n) {
    void *p = malloc(500000); KEEP(p); free(p);
    return n == 0 ? 0 : recurse(n - 1) + 1;
}
int main(void) { return recurse(3000) == 3000 ? 0 : 1; }";
    let recorded = record(&program!("recursion", source));
    assert_eq!(recorded.status.code(), Some(0));
    let events = mine(&recorded, 500_000, 500_001);
    assert_eq!(events.len(), 3_001);
    let deepest = events.iter().map(|event| event.stack().len()).max().unwrap();
    assert!((256..=513).contains(&deepest), "{deepest}");
    assert_eq!(events.last().unwrap().stack().last().unwrap(), "...");
}

#[test]
fn a_signal_handler_that_allocates_has_a_stack_through_what_it_interrupted() {
    let source = "
static void handle(int signal) { void *p = malloc(480000); KEEP(p); free(p); }
__attribute__((noinline)) void interrupted(void) { raise(SIGUSR1); KEEP(0); }
int main(void) { signal(SIGUSR1, handle); for (int i = 0; i < 3; i++) interrupted(); return 0; }";
    let program = program!("signals", source);
    let recorded = record(&program);
    let functions = program.functions();
    for event in mine(&recorded, 480_000, 480_001) {
        let names: Vec<&str> = event
            .offsets_in("signals")
            .map(|offset| &**functions.range(..=offset).next_back().unwrap().1)
            .collect();
        assert_eq!(names, ["handle", "interrupted", "main", "_start"]);
    }
    assert_eq!(mine(&recorded, 480_000, 480_001).len(), 3);
}

#[test]
fn the_cache_never_gives_another_stack_than_the_unwinder() {
    // Whichever of them is there; each goes other ways through other libraries.
    let programs: [(&str, &[&str], &str); 4] = [
        ("jq", &["[range(2000)] | map({a: ., b: tostring}) | group_by(.b[0:1]) | length", "-n"], ""),
        (
            "sqlite3",
            &[":memory:"],
            "create table t(a, b); with recursive n(i) as (select 1 union all select i+1 from n where i<3000)
             insert into t select i, 'x'||i from n; create index x on t(b); select count(distinct b) from t;",
        ),
        ("python3", &["-c", "import json; print(len(json.dumps([{'a': str(i)} for i in range(3000)])))"], ""),
        ("sh", &["-c", "for i in 1 2 3; do echo $i | sed s/1/2/ | sort; done; ls -la /"], ""),
    ];
    let mut compared = 0;
    for (name, arguments, input) in programs {
        let Some(recorded) = record_installed(name, arguments, input, |command| {
            command.env("ALLOT_RECORD_CHECK", "1").env("PYTHONMALLOC", "malloc");
        }) else {
            eprintln!("skipped: there is no {name} here");
            continue;
        };
        for process in 0..recorded.processes().len() {
            let end = recorded.end(process);
            compared += end.stacks_checked;
            assert_eq!(end.stacks_wrong, 0, "{name}: {end:?}");
        }
    }
    assert!(compared > 0);
}

/// A function that calls `malloc` with any number as its frame pointer, and without a rule for
/// unwinders.
#[cfg(target_arch = "x86_64")]
const ODD_FRAME: &str = r#"
#include <stdint.h>
#include <sys/mman.h>
__asm__(".text\nodd:\n push %rbp\n mov %rdi, %rbp\n mov %rsi, %rdi\n call malloc@PLT\n pop %rbp\n ret\n");
void *odd(void *frame, size_t size);
static void *work(void *none) {
    uintptr_t here = (uintptr_t)&here, at = (here & ~4095ul) + (16ul << 20);
    char *near = MAP_FAILED;
    for (; near == MAP_FAILED && at < here + (60ul << 20); at += 1 << 20)
        near = mmap((void *)at, 8192, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (near == MAP_FAILED) exit(77);
    uintptr_t *words = (uintptr_t *)near;
    words[0] = (uintptr_t)(near + 256);
    words[1] = 0x4242424242;
    for (int i = 0; i < 1000; i++) free(odd(near, 660001));
    munmap(near, 8192);
    for (int i = 0; i < 1000; i++) free(odd(near, 660002)), free(odd(near + 512, 660003));
    return 0;
}
int main(void) {
    pthread_t thread;
    pthread_create(&thread, 0, work, 0);
    return pthread_join(thread, 0);
}"#;

#[cfg(target_arch = "x86_64")]
#[test]
fn a_frame_pointer_that_is_none_and_whose_memory_goes_is_not_followed() {
    let recorded = record(&program!("odd", ODD_FRAME));
    assert_eq!(recorded.status.code(), Some(0), "{}", recorded.errors);
    assert_eq!(mine(&recorded, 660_001, 660_004).len(), 3_000);
}
