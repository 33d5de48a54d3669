//! Which events there are, and what each of them tells.

use crate::programs::{mine, record, record_installed};
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use trace_format::EventAction;
use trace_format::raw::{AllocationFunction, LockKind};

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
    let seen: Vec<(u64, AllocationFunction, u64)> = mine(&recorded, 770_000, 771_000)
        .iter()
        .map(|event| (event.size, event.flags.function(), event.flags.alignment()))
        .collect();
    assert_eq!(
        seen,
        [
            (770_001, AllocationFunction::Malloc, 1),
            (770_077, AllocationFunction::Calloc, 1),
            (770_003, AllocationFunction::Malloc, 1),
            (770_004, AllocationFunction::Realloc, 1),
            (770_005, AllocationFunction::Realloc, 1),
            (770_011, AllocationFunction::Realloc, 1),
            (770_006, AllocationFunction::Aligned, 64),
            (770_048, AllocationFunction::Aligned, 128),
            (770_007, AllocationFunction::Aligned, 256),
            (770_008, AllocationFunction::Pages, 4096),
            (770_009, AllocationFunction::Pages, 4096),
            (770_010, AllocationFunction::Malloc, 1),
        ]
    );
    let asked = recorded.count(|action| matches!(action, EventAction::Usable { .. }));
    assert_eq!(asked, 1);
    let live = recorded.live(0);
    assert!(
        live.values().all(|size| !(770_000..771_000).contains(size)),
        "all were freed: {live:?}"
    );
    assert!(recorded.unknown_frees(0).is_empty());
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
    assert_eq!(recorded.count(|action| matches!(action, EventAction::ThreadEnd)), 64);
    assert!(recorded.unknown_frees(0).is_empty());
    assert_eq!(recorded.overlaps(0), 0);
}

#[test]
fn blocks_that_go_from_thread_to_thread_never_overlap() {
    // The taker's processor guesses that a block has come while it still looks: where a free's time
    // stamp doesn't wait for the look, one run in seven has a block that is freed before it is
    // allocated.
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
    let locks: Vec<LockKind> = waits.iter().map(|wait| wait.lock).collect();
    assert_eq!(locks, [LockKind::Mutex, LockKind::Read], "locks that were free are not waited for");
    for wait in waits {
        let ns = wait.duration_ns;
        assert!((1_000_000..60_000_000_000).contains(&ns), "{ns}");
        assert!(wait.stack[0].starts_with("locks+"), "{:?}", wait.stack);
    }
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

#[test]
fn a_compiler_s_event_takes_three_bytes_at_most() {
    // Of all programs tried its stacks, sizes and lifetimes repeat least.
    let source = "#include <map>\n#include <string>\nstd::map<std::string, int> m; int f(std::string s) { return m[s]; }";
    let arguments = ["-c", "-O1", "-x", "c++", "-", "-o", "/dev/null"];
    let Some(recorded) = record_installed("g++", &arguments, source, |_| {}) else {
        eprintln!("skipped: there is no g++ here");
        return;
    };
    assert_eq!(recorded.status.code(), Some(0), "{}", recorded.errors);
    let events = |process: &trace_format::Process| process.end.as_ref().unwrap().events;
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
