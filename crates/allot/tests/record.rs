//! `allot record`, with small C programs whose calls are known.

#[path = "record/programs.rs"]
mod programs;

use allot_trace::What;
use allot_trace::raw::{Lock, Origin};
use programs::{Allocation, Program, Recorded, compiled, record, record_with};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

/// The sizes that the small programs ask for, which nobody else does.
fn mine(recorded: &Recorded, from: u64, to: u64) -> Vec<Allocation<'_>> {
    recorded.allocations().filter(|event| (from..to).contains(&event.size)).collect()
}

macro_rules! program {
    ($name:literal, $source:expr) => {
        match compiled($name, $source, &["-O1", "-g", "-pthread"]) {
            Some(program) => program,
            None => return,
        }
    };
}

const HEAD: &str = "
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

#[test]
fn every_entry_point_is_seen_with_its_size_and_alignment() {
    let source = "
int main(void) {
    void *p, *volatile none = 0;
    p = malloc(770001); KEEP(p); free(p);
    p = calloc(77, 10001); KEEP(p); free(p);
    p = malloc(770003); KEEP(p); p = realloc(p, 770004); KEEP(p); free(p);
    p = realloc(none, 770005); KEEP(p); free(p);
    p = reallocarray(none, 11, 70001); KEEP(p); free(p);
    p = memalign(64, 770006); KEEP(p); free(p);
    p = aligned_alloc(128, 770048); KEEP(p); free(p);
    if (posix_memalign(&p, 256, 770007)) return 1; KEEP(p); free(p);
    p = valloc(770008); KEEP(p); free(p);
    p = pvalloc(770009); KEEP(p);
    if (malloc_usable_size(p) < 770009) return 2;
    free(p); free(0);
    p = malloc(770010); KEEP(p); p = realloc(p, 0); if (p) return 3;
    if (malloc((size_t)-1 / 2) || errno != ENOMEM) return 4;
    return 0;
}";
    let recorded = record(&program!("entries", source));
    assert_eq!(recorded.status.code(), Some(0));
    let seen: Vec<(u64, Origin, u64)> = mine(&recorded, 770_000, 771_000)
        .iter()
        .map(|event| (event.size, event.flags.origin(), event.flags.alignment()))
        .collect();
    assert_eq!(
        seen,
        [
            (770_001, Origin::Malloc, 1),
            (770_077, Origin::Calloc, 1),
            (770_003, Origin::Malloc, 1),
            (770_004, Origin::Realloc, 1),
            (770_005, Origin::Realloc, 1),
            (770_011, Origin::Realloc, 1),
            (770_006, Origin::Aligned, 64),
            (770_048, Origin::Aligned, 128),
            (770_007, Origin::Aligned, 256),
            (770_008, Origin::Pages, 4096),
            (770_009, Origin::Pages, 4096),
            (770_010, Origin::Malloc, 1),
        ]
    );
    let asked = recorded.count(|what| matches!(what, What::Usable { .. }));
    assert_eq!(asked, 1);
    let live = recorded.live(0);
    assert!(
        live.values().all(|size| !(770_000..771_000).contains(size)),
        "all were freed: {live:?}"
    );
    assert!(recorded.unknown_frees(0).is_empty());
}

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
fn every_event_of_many_threads_is_there() {
    let source = "
enum { THREADS = 64, EVENTS = 2000 };
static void *work(void *n) {
    for (long i = 0; i < EVENTS; i++) { void *p = malloc(660000 + (long)n); KEEP(p); free(p); }
    return 0;
}
int main(void) {
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++) pthread_create(&threads[i], 0, work, (void *)i);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], 0);
    return 0;
}";
    let recorded = record(&program!("threads", source));
    let mut counts = BTreeMap::<(u64, u32), u64>::new();
    for event in mine(&recorded, 660_000, 660_064) {
        let key = (event.size, event.thread);
        *counts.entry(key).or_default() += 1;
    }
    assert_eq!(counts.len(), 64, "each thread has a number of its own");
    assert!(counts.values().all(|&count| count == 2_000), "{counts:?}");
    assert_eq!(recorded.count(|what| matches!(what, What::ThreadEnd)), 64);
    assert!(recorded.unknown_frees(0).is_empty());
    assert_eq!(recorded.overlaps(0), 0);
}

#[test]
fn blocks_that_go_from_thread_to_thread_never_overlap() {
    // The taker's processor guesses that a block has come while it still looks: where a free's time stamp doesn't wait for
    // the look, one run in seven has a block that is freed before it is allocated.
    let source = "
enum { EVENTS = 300000, ROOM = 64, SPINS = 200 };
static void *volatile ring[ROOM];
static void relax(int *spins) {
    if (++*spins % SPINS == 0) sched_yield();
#ifdef __x86_64__
    else __builtin_ia32_pause();
#endif
}
static void *take(void *unused) {
    int spins = 0;
    for (long i = 0; i < EVENTS; i++) {
        void *p;
        while (!(p = __atomic_exchange_n(&ring[i % ROOM], 0, __ATOMIC_ACQ_REL))) relax(&spins);
        free(p);
    }
    return 0;
}
int main(void) {
    int spins = 0;
    pthread_t thread;
    pthread_create(&thread, 0, take, 0);
    for (long i = 0; i < EVENTS; i++) {
        void *p = malloc(32 + i % 5 * 500);
        while (__atomic_load_n(&ring[i % ROOM], __ATOMIC_ACQUIRE)) relax(&spins);
        __atomic_store_n(&ring[i % ROOM], p, __ATOMIC_RELEASE);
    }
    pthread_join(thread, 0);
    return 0;
}";
    let recorded = record(&program!("exchange", source));
    assert!(recorded.allocations().count() >= 300_000);
    assert_eq!(recorded.overlaps(0), 0);
    assert!(recorded.unknown_frees(0).is_empty());
}

#[test]
fn a_child_of_a_fork_has_its_own_process_and_its_parent_s_blocks() {
    let source = "
int main(void) {
    void *before = malloc(550001); KEEP(before);
    if (fork() == 0) { void *p = malloc(550002); KEEP(p); free(before); free(p); exit(0); }
    int status; wait(&status);
    void *p = malloc(550003); KEEP(p); free(before); free(p);
    return status;
}";
    let recorded = record(&program!("fork", source));
    assert_eq!(recorded.status.code(), Some(0));
    assert_eq!(recorded.processes().len(), 2);
    assert!(recorded.processes()[1].header.forked);
    let sizes = |process: usize| -> Vec<u64> {
        mine(&recorded, 550_000, 551_000)
            .iter()
            .filter(|event| event.process == process)
            .map(|event| event.size)
            .collect()
    };
    assert_eq!(sizes(0), [550_001, 550_003]);
    assert_eq!(sizes(1), [550_002]);
    assert_eq!(recorded.unknown_frees(1).len(), 1, "the parent's block");
    assert!(recorded.unknown_frees(0).is_empty());
}

#[test]
fn an_exec_is_a_new_image_and_what_was_before_stays() {
    let source = "
int main(int count, char **words) {
    void *p = malloc(540000 + count); KEEP(p);
    if (count == 1) execl(words[0], words[0], \"again\", (char *)0);
    return count == 2 ? 0 : 1;
}";
    let recorded = record(&program!("exec", source));
    assert_eq!(recorded.status.code(), Some(0));
    let sizes: Vec<(usize, u64)> =
        mine(&recorded, 540_000, 541_000).iter().map(|event| (event.process, event.size)).collect();
    assert_eq!(sizes, [(0, 540_001), (1, 540_002)]);
    let headers: Vec<_> = recorded.processes().iter().map(|process| &process.header).collect();
    assert_eq!(headers[0].pid, headers[1].pid);
    assert_eq!((headers[0].image, headers[1].image), (0, 1));
}

#[test]
fn nothing_is_lost_however_the_program_ends() {
    let source = "
int main(int count, char **words) {
    for (int i = 0; i < 20000; i++) { void *p = malloc(530000 + i % 10); KEEP(p); free(p); }
    void *p = malloc(530999); KEEP(p);
    switch (words[1][0]) {
    case 'e': exit(3);
    case '_': _exit(4);
    case 'a': abort();
    case 'k': kill(getpid(), SIGKILL);
    case 's': *(volatile int *)8 = 1;
    }
    return 0;
}";
    let program = program!("ends", source);
    // A shell says 128 and the signal's number, and so do we.
    for (way, code) in [("e", 3), ("_", 4), ("a", 134), ("k", 137), ("s", 139)] {
        let recorded = record_with(&program, &[way], |_| {});
        assert_eq!(recorded.status.code(), Some(code), "{way}");
        assert_eq!(mine(&recorded, 530_000, 530_010).len(), 20_000, "{way}");
        assert_eq!(mine(&recorded, 530_999, 531_000).len(), 1, "{way}");
        assert_eq!(recorded.end(0).exited, way == "e", "{way}");
    }
}

#[test]
fn a_thread_s_last_frees_are_seen_behind_its_destructors() {
    let source = "
static pthread_key_t keys[3];
static void destroy(void *p) { free(p); void *q = malloc(520500); KEEP(q); free(q); }
static void *work(void *unused) {
    for (int i = 0; i < 3; i++) pthread_setspecific(keys[i], malloc(520000 + i));
    return 0;
}
int main(void) {
    for (int i = 0; i < 3; i++) pthread_key_create(&keys[i], destroy);
    for (int i = 0; i < 50; i++) { pthread_t t; pthread_create(&t, 0, work, 0); pthread_join(t, 0); }
    return 0;
}";
    let recorded = record(&program!("destructors", source));
    assert_eq!(mine(&recorded, 520_000, 520_003).len(), 150);
    assert_eq!(mine(&recorded, 520_500, 520_501).len(), 150);
    let live = recorded.live(0);
    assert!(live.values().all(|size| !(520_000..521_000).contains(size)), "{live:?}");
    let threads: BTreeSet<u32> =
        mine(&recorded, 520_000, 520_501).iter().map(|event| event.thread).collect();
    assert_eq!(threads.len(), 50, "what a thread does behind its end is still its own");
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
    assert!(recorded.count(|what| matches!(what, What::ModuleUnloaded(_))) >= 40);
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
fn a_full_disk_ends_the_recording_and_not_the_program() {
    let source = "
int main(void) {
    for (int i = 0; i < 3000000; i++) { void *p = malloc(490000 + i % 97); KEEP(p); free(p); }
    puts(\"done\");
    return 7;
}";
    let recorded = record_with(&program!("full", source), &[], |command| {
        // As where a disk is full: no file may have more than so many KiB. The program's own signal for that would end it.
        command.env("ALLOT_TEST_LIMIT", "600");
    });
    assert_eq!(recorded.status.code(), Some(7));
    assert!(recorded.errors.contains("lost: what process"), "{}", recorded.errors);
    assert!(recorded.errors.contains("ulimit -f"), "{}", recorded.errors);
    // The shell that set the limit was the image before.
    let end = recorded.end(1);
    assert!(end.full_at_ns.unwrap() > 0, "{end:?}");
    assert_eq!(end.full_error, Some(libc::EFBIG as u32), "{end:?}");
    let seen = mine(&recorded, 490_000, 490_097).len();
    assert!((10_000..3_000_000).contains(&seen), "{seen}");
}

#[test]
fn waits_for_locks_have_their_site_and_their_time() {
    let source = "
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static void *hold(void *barrier) {
    pthread_mutex_lock(&mutex); pthread_rwlock_wrlock(&rwlock);
    pthread_barrier_wait(barrier); usleep(30000);
    pthread_mutex_unlock(&mutex); usleep(30000); pthread_rwlock_unlock(&rwlock);
    return 0;
}
int main(void) {
    pthread_barrier_t barrier; pthread_t thread;
    pthread_barrier_init(&barrier, 0, 2);
    pthread_create(&thread, 0, hold, &barrier);
    pthread_barrier_wait(&barrier);
    pthread_mutex_lock(&mutex); pthread_mutex_unlock(&mutex);
    pthread_rwlock_rdlock(&rwlock); pthread_rwlock_unlock(&rwlock);
    pthread_join(thread, 0);
    pthread_mutex_lock(&mutex); pthread_mutex_unlock(&mutex);
    return 0;
}";
    let recorded = record(&program!("locks", source));
    let waits = recorded.waits();
    let locks: Vec<Lock> = waits.iter().map(|wait| wait.lock).collect();
    assert_eq!(locks, [Lock::Mutex, Lock::Read], "those that nobody held are none");
    for wait in waits {
        let ns = wait.duration_ns;
        assert!((1_000_000..60_000_000_000).contains(&ns), "{ns}");
        assert!(wait.stack[0].starts_with("locks+"), "{:?}", wait.stack);
    }
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
fn a_program_that_can_t_be_seen_is_told_so_in_one_line() {
    let own = format!(
        "{HEAD} static char room[1 << 20]; static size_t used;
         void *malloc(size_t n) {{ void *p = room + used; used += (n + 15) & ~15ul; return p; }}
         void free(void *p) {{ (void)p; }}
         int main(void) {{ free(malloc(3)); return 0; }}"
    );
    let empty = "int main(void) { return 0; }";
    let programs = [
        (compiled("static", empty, &["-static"]), "linked statically"),
        (compiled("own-malloc", &own, &["-rdynamic"]), "malloc of its own"),
    ];
    for (program, why) in programs {
        let Some(program) = program else { continue };
        let recorded = record(&program);
        assert_eq!(recorded.status.code(), Some(0), "it runs all the same");
        let told = recorded.errors.lines().filter(|line| line.contains(why)).count();
        assert_eq!(told, 1, "{}", recorded.errors);
    }
}

#[test]
fn go_and_another_user_s_rights_are_told_in_one_line() {
    // What the linker of Go leaves in every program.
    let go = "__attribute__((section(\".gopclntab\"))) int table = 1; int main(void) { return 0; }";
    let other = compiled("setuid", "int main(void) { return 0; }", &[]);
    let mut programs = vec![(compiled("go", go, &[]), "written in Go")];
    if let Some(program) = &other {
        // As another user's, if we may give files away; else it is our own, and no obstacle.
        let given = std::os::unix::fs::chown(program.path(), Some(65_534), None);
        let rights = std::fs::Permissions::from_mode(0o4755);
        if given.and_then(|()| std::fs::set_permissions(program.path(), rights)).is_ok() {
            programs.push((other, "another user's or group's rights"));
        } else {
            eprintln!("skipped: a setuid program can be made by root alone");
        }
    }
    for (program, why) in programs {
        let Some(program) = program else { continue };
        let recorded = record(&program);
        assert_eq!(recorded.status.code(), Some(0), "it runs all the same");
        let told = recorded.errors.lines().filter(|line| line.contains(why)).count();
        assert_eq!(told, 1, "{}", recorded.errors);
    }
}

#[test]
fn ctrl_c_goes_to_the_program_and_leaves_a_recording() {
    let source = "
int main(void) {
    for (int i = 0; i < 1000; i++) { void *p = malloc(470000 + i); KEEP(p); free(p); }
    puts(\"ready\"); fflush(stdout);
    for (;;) pause();
}";
    let program = program!("endless", source);
    let recorded = programs::record_until_ready(&program, |group| {
        // As a terminal does: to all of the foreground.
        // SAFETY: it touches no memory.
        assert_eq!(unsafe { libc::kill(-group, libc::SIGINT) }, 0);
    });
    assert_eq!(recorded.status.code(), Some(130), "{}", recorded.errors);
    assert_eq!(mine(&recorded, 470_000, 471_000).len(), 1_000);
    assert!(recorded.errors.contains("lost: nothing"), "{}", recorded.errors);
}

#[test]
fn calls_are_measured_now_and_then() {
    let source = "
int main(void) {
    for (int i = 0; i < 200000; i++) {
        void *p = malloc(460000); KEEP(p); p = realloc(p, 460001); KEEP(p); free(p);
    }
    return 0;
}";
    let recorded = record(&program!("measured", source));
    let costs = recorded.end(0).costs.expect("there were enough calls");
    let all = [costs.allocations, costs.frees, costs.reallocations];
    for cost in all {
        // One in 256, and a third of these of each kind.
        assert!((200_000 / 512..200_000 / 128).contains(&cost.samples), "{costs:?}");
        assert!(cost.mean_ns().unwrap() > 0.0, "{costs:?}");
    }
    let samples: u64 = all.iter().map(|cost| cost.samples).sum();
    assert_eq!(costs.recorder.samples, samples);
    assert!(costs.recorder.ns > 0.0 && costs.stamp_ns > 0.0, "{costs:?}");
}

/// Takes every number of a file that a program could know of, and leaves its own files there.
const CLOSE_ALL: &str = "
static void close_all(const char *own) {
    for (int i = 3; i < 65536; i++) close(i);
    while (open(own, O_RDWR) >= 0) {}
}
static void work(void) {
    for (int i = 0; i < 100000; i++) { void *p = malloc(450000 + i % 10); KEEP(p); free(p); }
}";

#[test]
fn a_program_that_closes_all_files_is_recorded_and_its_own_are_left_alone() {
    let source = format!(
        "#include <fcntl.h>
{CLOSE_ALL} int main(int count, char **words) {{ work(); close_all(words[1]); work(); return 0; }}"
    );
    let program = program!("closes", &source);
    let own = format!("{}.own", program.path());
    std::fs::write(&own, "mine").unwrap();
    let recorded = record_with(&program, &[&own], |_| {});
    assert_eq!(recorded.status.code(), Some(0), "{}", recorded.errors);
    // No number is left for a file of ours.
    assert!(recorded.errors.contains("closed the recording's file"), "{}", recorded.errors);
    assert!(mine(&recorded, 450_000, 450_010).len() >= 100_000);
    assert_eq!(std::fs::read(&own).unwrap(), b"mine");
}

#[test]
fn a_daemon_that_changes_its_root_and_gives_up_its_rights_is_recorded_to_its_end() {
    if !nix::unistd::Uid::effective().is_root() {
        eprintln!("skipped: only root may change its root");
        return;
    }
    let source = format!(
        "#include <fcntl.h>
{CLOSE_ALL} int main(int count, char **words) {{
    int status;
    if (fork()) {{ wait(&status); return WEXITSTATUS(status); }}
    work(); setsid();
    if (chroot(words[1]) || chdir(\"/\")) return 1;
    if (fork()) {{ wait(&status); return WEXITSTATUS(status); }}
    work();
    if (setgid(65534) || setuid(65534)) return 2;
    work();
    return 0;
}}"
    );
    let program = program!("daemon", &source);
    let root = format!("{}.root", program.path());
    std::fs::create_dir(&root).unwrap();
    let recorded = record_with(&program, &[&root], |_| {});
    assert_eq!(recorded.status.code(), Some(0), "{}", recorded.errors);
    assert!(recorded.errors.contains("lost: nothing"), "{}", recorded.errors);
    assert_eq!(recorded.processes().len(), 3);
    assert_eq!(mine(&recorded, 450_000, 450_010).len(), 300_000);
}

#[test]
fn a_compiler_s_event_takes_three_bytes_at_most() {
    // Of all programs tried its stacks, sizes and lifetimes repeat least.
    let source = "#include <map>\n#include <string>\nstd::map<std::string, int> m; int f(std::string s) { return m[s]; }";
    let arguments = ["-c", "-O1", "-x", "c++", "-", "-o", "/dev/null"];
    let Some(recorded) = programs::record_installed("g++", &arguments, source, |_| {}) else {
        eprintln!("skipped: there is no g++ here");
        return;
    };
    assert_eq!(recorded.status.code(), Some(0), "{}", recorded.errors);
    let events = |process: &allot_trace::Process| process.end.as_ref().unwrap().events;
    let compiler = recorded.processes().iter().max_by_key(|process| events(process)).unwrap();
    let (events, bytes) = (events(compiler), compiler.compressed_bytes());
    assert!(events > 100_000, "{events}");
    assert!(bytes <= 3 * events, "{bytes} bytes for {events} events");
}

#[test]
fn what_is_shown_is_what_was_recorded() {
    let source = "int main(void) { void *p = malloc(440001); KEEP(p); free(p); return 0; }";
    let recorded = record(&program!("shown", source));
    let show = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_allot"));
        let output = command.args(["record", "--show"]).arg(&recorded.file).args(words).output();
        let output = output.unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let text = show(&[]);
    let line = text.lines().find(|line| line.contains(" 440001 ")).unwrap();
    assert!(line.contains("malloc") && line.contains(" by shown+0x"), "{line}");
    let lines: Vec<serde_json::Value> =
        show(&["--json"]).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines[0]["header"]["pid"].is_u64(), "{}", lines[0]);
    let events = lines.iter().filter(|line| line.get("event").is_some()).count();
    assert_eq!(events, recorded.count(|_| true));
    let event = lines.iter().find(|line| line["size"] == 440_001).unwrap();
    assert_eq!((&event["origin"], &event["event"]), (&"malloc".into(), &"alloc".into()));
    assert!(event["stack"][0].as_str().unwrap().starts_with("shown+0x"), "{event}");
}

#[test]
fn a_program_that_is_not_there_is_told_in_one_line() {
    let output = Command::new(env!("CARGO_BIN_EXE_allot"))
        .args(["record", "-o", "/dev/null", "--", "no-such-program-anywhere"])
        .output()
        .unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert!(errors.contains("no-such-program-anywhere"), "{errors}");
    assert_eq!(output.status.signal(), None);
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
        let Some(recorded) = programs::record_installed(name, arguments, input, |command| {
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

/// A function that calls `malloc` with any number as its frame pointer, and without a rule for unwinders.
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

/// Forbids itself all calls but a few, in a way that its first argument says, and then allocates.
const FORBIDS: &str = r#"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
int main(int count, char **words) {
    int how = atoi(words[1]);
    void *first = malloc(670001);
    KEEP(first);
    free(first);
    unsigned answers[] = {0, SECCOMP_RET_KILL_PROCESS, SECCOMP_RET_TRAP, SECCOMP_RET_ERRNO | EPERM};
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_brk, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, answers[how % 4]),
    };
    struct sock_fprog program = {5, filter};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    int failed = how == 8  ? 0
                 : how == 0  ? prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT)
                 : how > 4 ? syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program)
                           : prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
    if (how == 8) failed = prctl(PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0);
    if (failed) return 9;
    for (int i = 0; i < 300000; i++) {
        void *p = malloc(16 + i % 64);
        KEEP(p);
        free(p);
    }
    syscall(SYS_exit, 3);
}"#;

#[test]
fn a_program_that_forbids_itself_calls_runs_to_its_end() {
    let program = program!("forbids", FORBIDS);
    // The last forbids the processor's clock, which only one kind of processor can.
    let last = if cfg!(target_arch = "x86_64") { 8 } else { 7 };
    for how in (0..=last).filter(|&how| how != 4).map(|how: u32| how.to_string()) {
        let how = &*how;
        let recorded = record_with(&program, &[how], |_| {});
        assert_eq!(recorded.status.code(), Some(3), "{how}: {}", recorded.errors);
        assert!(recorded.errors.contains("forbids itself calls"), "{how}: {}", recorded.errors);
        assert_eq!(mine(&recorded, 670_001, 670_002).len(), 1, "{how}");
    }
}

/// A timer's handler forks, wherever the program is; half of the children go on from there.
const FORKING_HANDLER: &str = r#"
#include <sys/time.h>
static volatile int forks;
static void fork_here(int signal) {
    if (!fork()) {
        if (forks & 1) return;
        _exit(0);
    }
    forks++;
}
int main(void) {
    pid_t own = getpid();
    struct sigaction action = {.sa_handler = fork_here, .sa_flags = SA_RESTART};
    struct itimerval time = {{0, 500}, {0, 500}};
    sigaction(SIGALRM, &action, 0);
    setitimer(ITIMER_REAL, &time, 0);
    for (int i = 0; forks < 200; i++) {
        void *p = malloc(16 + i % 8 * 16);
        KEEP(p);
        free(p);
        if (getpid() != own) {
            for (int k = 0; k < 100; k++) { p = malloc(k); KEEP(p); free(p); }
            _exit(0);
        }
    }
    signal(SIGALRM, SIG_IGN);
    while (wait(0) > 0) {}
    return 0;
}"#;

#[test]
fn a_handler_that_forks_in_the_middle_of_an_event_leaves_its_parent_s_recording_whole() {
    let recorded = record(&program!("forking_handler", FORKING_HANDLER));
    assert_eq!(recorded.status.code(), Some(0), "{}", recorded.errors);
    assert!(recorded.errors.contains("lost: nothing"), "{}", recorded.errors);
}

#[test]
fn what_is_ignored_or_closed_is_so_for_the_program_too() {
    let source = "
#include <fcntl.h>
int main(void) {
    for (int i = 1; i < 32; i++) {
        struct sigaction action;
        if (!sigaction(i, 0, &action) && action.sa_handler == SIG_IGN) fprintf(stderr, \"<%d>\", i);
    }
    for (int i = 0; i < 2; i++) if (fcntl(i, F_GETFD) < 0) fprintf(stderr, \"<closed %d>\", i);
    return 5;
}";
    let program = program!("inherits", source);
    let seen = |recorded: &Recorded| -> String {
        let told = recorded.errors.split_inclusive('>').map(|word| word.trim_start());
        told.filter(|word| word.starts_with('<')).collect()
    };
    // None of these is a wish of ours. What ran this test may have had some: nohup, a shell's background.
    let plain = record_with(&program, &[], |command| {
        command.stdin(std::process::Stdio::piped());
        // SAFETY: it is allowed between fork and exec, and no handler is set.
        unsafe {
            std::os::unix::process::CommandExt::pre_exec(command, || {
                for signal in 1..32 {
                    libc::signal(signal, libc::SIG_DFL);
                }
                Ok(())
            });
        }
    });
    assert_eq!((plain.status.code(), seen(&plain).as_str()), (Some(5), ""), "{}", plain.errors);
    let ignoring = record_with(&program, &[], |command| {
        // SAFETY: both are allowed between fork and exec.
        unsafe {
            std::os::unix::process::CommandExt::pre_exec(command, || {
                for signal in [1, 2, 3, 13, 15, 17, 25] {
                    libc::signal(signal, libc::SIG_IGN);
                }
                libc::close(1);
                Ok(())
            });
        }
    });
    assert_eq!(ignoring.status.code(), Some(5), "{}", ignoring.errors);
    assert_eq!(seen(&ignoring), "<1><2><3><13><15><17><25><closed 1>", "{}", ignoring.errors);
}

#[test]
fn a_recording_within_a_recording_has_each_process_once() {
    let program = program!("inner", "int main(void) { free(malloc(680001)); return 6; }");
    let inner = format!("{}.allot", program.path());
    let allot = Program::at(env!("CARGO_BIN_EXE_allot"));
    let outer =
        record_with(&allot, &["record", "--json", "-o", &inner, "--", program.path()], |_| {});
    assert_eq!(outer.status.code(), Some(6), "{}", outer.errors);
    let reader = allot_trace::Reader::open(std::path::Path::new(&inner)).unwrap();
    assert_eq!(reader.processes().len(), 1);
    assert!(!outer.processes().is_empty());
}

/// A program with what every one begins with.
fn with_head(source: &str) -> String {
    if source.contains("#define _GNU_SOURCE") {
        source.to_owned()
    } else {
        format!("{HEAD}{source}")
    }
}
