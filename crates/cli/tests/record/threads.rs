//! What several threads do is recorded as it happened.

use crate::programs::{mine, record, record_with};
use trace_format::raw::AllocationFunction;

#[test]
fn what_a_call_calls_itself_behind_a_thread_s_end_is_no_call_of_its_own() {
    // The C library's `reallocarray` calls `realloc`. Without a mark that the thread is in a hook
    // each was recorded, in every run.
    let source = "
enum { THREADS = 300 };
static pthread_key_t key;
static void end(void *p) {
    p = reallocarray(p, 1, 430001); KEEP(p);
    p = reallocarray(p, 1, 430002); KEEP(p);
    free(p);
}
static void *thread(void *unused) {
    void *p = malloc(430000); KEEP(p);
    pthread_setspecific(key, p);
    return unused;
}
int main(void) {
    pthread_key_create(&key, end);
    for (int i = 0; i < THREADS; i++) {
        pthread_t one, other;
        pthread_create(&one, 0, thread, 0);
        pthread_create(&other, 0, thread, 0);
        pthread_join(one, 0);
        pthread_join(other, 0);
    }
    return 0;
}";
    let recorded = record(&program!("destructors", source));
    let seen = mine(&recorded, 430_000, 430_003);
    let of = |function| seen.iter().filter(|event| event.flags.function() == function).count();
    assert_eq!((of(AllocationFunction::Malloc), of(AllocationFunction::Realloc)), (600, 1200));
    assert_eq!(recorded.overlaps(0), 0);
    assert!(recorded.unknown_frees(0).is_empty());
}

#[test]
fn a_recording_that_ended_tells_nothing_of_what_some_threads_did_afterwards() {
    // The thread that needs the next chunk ends the recording, and others have room in theirs.
    // Where what those wrote was told as well, every run had thousands of blocks that were
    // allocated twice, and of frees of blocks that were never allocated.
    let source = "
enum { THREADS = 4, EVENTS = 60000, ROOM = 256 };
static void *volatile room[ROOM];
static void *thread(void *of) {
    unsigned long random = (unsigned long)of + 1;
    for (int i = 0; i < EVENTS; i++) {
        random = random * 6364136223846793005ul + 1442695040888963407ul;
        void *p = malloc(20 + (random >> 40) % 500);
        free(__atomic_exchange_n(&room[(random >> 52) % ROOM], p, __ATOMIC_ACQ_REL));
    }
    return 0;
}
int main(void) {
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++) pthread_create(&threads[i], 0, thread, (void *)i);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], 0);
    return 0;
}";
    let recorded = record_with(&program!("full-threads", source), &[], |command| {
        command.env("ALLOT_TEST_LIMIT", "1600");
    });
    assert_eq!(recorded.status.code(), Some(0));
    // The shell that set the limit was the image before.
    let end = recorded.end(1);
    assert!(end.full_at_ns.is_some(), "{end:?}");
    // How much is told depends on when the slowest thread came to write.
    assert!(recorded.allocations().count() > 1_000);
    assert_eq!(recorded.overlaps(1), 0);
    assert!(recorded.unknown_frees(1).is_empty());
}

#[test]
fn a_process_that_goes_on_is_told_up_to_one_time_for_all_its_threads() {
    // Its chunks are read one after the other. Where all that is in them was told, five runs in six
    // had blocks that were allocated twice, since what freed them in between lay in a chunk that
    // had been read.
    let source = "
enum { THREADS = 4, ROOM = 256 };
static void *volatile room[ROOM];
static int ready[2];
static void *thread(void *of) {
    unsigned long random = (unsigned long)of + 1;
    for (long i = 0;; i++) {
        if (i % 200 == 0) usleep(2000);
        if (i == 20000) write(ready[1], &i, 1);
        random = random * 6364136223846793005ul + 1442695040888963407ul;
        void *p = malloc(20 + (random >> 40) % 500);
        free(__atomic_exchange_n(&room[(random >> 52) % ROOM], p, __ATOMIC_ACQ_REL));
    }
    return 0;
}
int main(void) {
    char one;
    if (pipe(ready)) return 1;
    if (fork()) return read(ready[0], &one, 1) != 1;
    close(0); close(1); close(2);
    alarm(10);
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++) pthread_create(&threads[i], 0, thread, (void *)i);
    pause();
    return 0;
}";
    let recorded = record(&program!("goes-on", source));
    let child = (0..2).find(|&process| recorded.processes()[process].header.forked).unwrap();
    assert!(recorded.end(child).still_running, "{}", recorded.errors);
    assert!(recorded.end(child).events > 10_000);
    assert_eq!(recorded.overlaps(child), 0);
    assert!(recorded.unknown_frees(child).is_empty());
}
