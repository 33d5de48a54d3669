//! What several threads do is recorded as it happened.

use crate::programs::{mine, record};
use allot_trace::raw::Origin;

#[test]
fn what_a_call_calls_itself_behind_a_thread_s_end_is_no_call_of_its_own() {
    // The C library's `reallocarray` calls `realloc`. Without a mark that the thread is in a hook each was recorded, in every run.
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
    let of = |origin| seen.iter().filter(|event| event.flags.origin() == origin).count();
    assert_eq!((of(Origin::Malloc), of(Origin::Realloc)), (600, 1200));
    assert_eq!(recorded.overlaps(0), 0);
    assert!(recorded.unknown_frees(0).is_empty());
}
