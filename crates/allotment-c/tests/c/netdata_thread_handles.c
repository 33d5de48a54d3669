/* A thread's handle to the ARAL that it uses most has no visible effect: not when the thread moves to
 * another ARAL, not when the ARAL is destroyed meanwhile, not when the thread ends. */
#include <allotment_netdata.h>

#include "watched.h"

#undef NDEBUG
#include <assert.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>

static ARAL *create(const char *name, size_t size)
{
    return aral_create(name, size, 0, 0, NULL, NULL, NULL, true, false, false);
}

static void use(ARAL *ar, size_t times)
{
    for (size_t time = 0; time < times; time++) {
        uint64_t *element = aral_mallocz(ar);
        *element = time;
        aral_freez(ar, element);
    }
}

static void elements_of_several_are_not_mixed_up(void)
{
    enum { ARALS = 5, ELEMENTS = 3000 };
    ARAL *arals[ARALS];
    static uint64_t *elements[ARALS][ELEMENTS];
    for (size_t which = 0; which < ARALS; which++) {
        arals[which] = create("several", 8 + 24 * which);
    }
    /* One after the other, then all in turn. */
    for (size_t round = 0; round < 2; round++) {
        for (size_t at = 0; at < ARALS * ELEMENTS; at++) {
            size_t which = round == 0 ? at / ELEMENTS : at % ARALS;
            size_t index = round == 0 ? at % ELEMENTS : at / ARALS;
            elements[which][index] = aral_mallocz(arals[which]);
            *elements[which][index] = at;
        }
        for (size_t which = 0; which < ARALS; which++) {
            assert(aral_used_bytes(arals[which]) == ELEMENTS * (8 + 24 * which));
            for (size_t index = 0; index < ELEMENTS; index++) {
                assert(*elements[which][index] == (round == 0 ? which * ELEMENTS + index : index * ARALS + which));
                aral_freez(arals[which], elements[which][index]);
            }
            assert(aral_used_bytes(arals[which]) == 0);
        }
    }
    for (size_t which = 0; which < ARALS; which++) {
        aral_destroy(arals[which]);
    }
}

static void slots_of_freed_marked_elements_are_not_used_for_others(void)
{
    ARAL *ar = create("marked", 64);
    use(ar, 1000);
    enum { ELEMENTS = 1000 };
    static void *marked[ELEMENTS], *plain[ELEMENTS];
    for (size_t at = 0; at < ELEMENTS; at++) {
        marked[at] = aral_mallocz_marked(ar);
    }
    for (size_t at = 0; at < ELEMENTS; at += 2) {
        aral_freez(ar, marked[at]);
    }
    for (size_t at = 0; at < ELEMENTS; at++) {
        plain[at] = aral_mallocz(ar);
        for (size_t other = 1; other < ELEMENTS && !is_watched(); other += 2) {
            assert((uintptr_t)plain[at] / 4096 != (uintptr_t)marked[other] / 4096);
        }
    }
    for (size_t at = 0; at < ELEMENTS; at++) {
        aral_freez(ar, plain[at]);
        if (at % 2 == 1) {
            aral_freez(ar, marked[at]);
        }
    }
    aral_destroy(ar);
}

struct shared {
    pthread_barrier_t barrier;
    ARAL *ar;
};

static void *uses_and_waits(void *argument)
{
    struct shared *shared = argument;
    use(shared->ar, 1000);
    pthread_barrier_wait(&shared->barrier);
    /* The other thread destroys it. */
    pthread_barrier_wait(&shared->barrier);
    use(shared->ar, 10000); /* the next one, which may lie where the first was */
    pthread_barrier_wait(&shared->barrier);
    pthread_barrier_wait(&shared->barrier);
    return NULL;
}

static void one_may_be_destroyed_while_threads_live_that_used_it(void)
{
    struct shared shared;
    assert(pthread_barrier_init(&shared.barrier, NULL, 4) == 0);
    shared.ar = create("first", 40);
    pthread_t threads[3];
    for (size_t at = 0; at < 3; at++) {
        assert(pthread_create(&threads[at], NULL, uses_and_waits, &shared) == 0);
    }
    pthread_barrier_wait(&shared.barrier);
    assert(aral_used_bytes(shared.ar) == 0);
    aral_destroy(shared.ar);
    shared.ar = create("second", 48);
    pthread_barrier_wait(&shared.barrier);
    use(shared.ar, 1000);
    pthread_barrier_wait(&shared.barrier);
    aral_destroy(shared.ar);
    pthread_barrier_wait(&shared.barrier);
    for (size_t at = 0; at < 3; at++) {
        assert(pthread_join(threads[at], NULL) == 0);
    }
    pthread_barrier_destroy(&shared.barrier);
}

static void many_may_be_created_and_destroyed(void)
{
    ARAL *before = create("before", 32);
    for (size_t round = 0; round < 300; round++) {
        ARAL *ar = create("next", 32);
        use(before, 70);
        use(ar, 200);
        void *element = aral_mallocz(before);
        aral_destroy(before);
        allot_slab_free_anywhere(element);
        before = ar;
    }
    aral_destroy(before);
}

static pthread_key_t key;

static void uses_it_at_the_end(void *ar)
{
    use(ar, 500);
}

static void *leaves_work_for_its_end(void *ar)
{
    use(ar, 500);
    assert(pthread_setspecific(key, ar) == 0);
    return NULL;
}

static void a_thread_may_use_one_while_it_ends(void)
{
    ARAL *ar = create("end", 64);
    assert(pthread_key_create(&key, uses_it_at_the_end) == 0);
    for (int round = 0; round < 10; round++) {
        pthread_t thread;
        assert(pthread_create(&thread, NULL, leaves_work_for_its_end, ar) == 0);
        assert(pthread_join(thread, NULL) == 0);
    }
    assert(aral_used_bytes(ar) == 0);
    assert(pthread_key_delete(key) == 0);
    aral_destroy(ar);
}

int main(int count, char **arguments)
{
    if (count > 1 && strcmp(arguments[1], "--cases") == 0) {
        return 0;
    }
    elements_of_several_are_not_mixed_up();
    slots_of_freed_marked_elements_are_not_used_for_others();
    one_may_be_destroyed_while_threads_live_that_used_it();
    many_may_be_created_and_destroyed();
    a_thread_may_use_one_while_it_ends();
    return 0;
}
