/* Call sites in the shape of netdata's own: a page cache with statistics that a collector of the agent's own metrics
 * reads, buffers by size, a query's arena, and the tests that the agent runs by command line. */
#include <allotment_netdata.h>

#include "watched.h"

#undef NDEBUG
#include <assert.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the agent's own metrics: registers structures once, and reads their fields each second ------------------ */

struct registered {
    struct aral_statistics *stats;
    const char *name;
    struct registered *next;
};

static struct registered *registered;

static void pulse_register_statistics(struct aral_statistics *stats, const char *name)
{
    struct registered *entry = calloc(1, sizeof *entry);
    assert(entry != NULL);
    *entry = (struct registered){stats, name, registered};
    registered = entry;
}

static void pulse_register(ARAL *ar, const char *name)
{
    pulse_register_statistics(aral_get_statistics(ar), name == NULL ? aral_name(ar) : name);
}

struct sample {
    size_t structures, structures_bytes, pages, allocated, used, padding;
};

/* Reads fields only. */
static struct sample pulse_read(const char *name)
{
    const struct registered *entry = registered;
    while (strcmp(entry->name, name) != 0) {
        entry = entry->next;
        assert(entry != NULL);
    }
    const struct aral_statistics *stats = entry->stats;
    struct sample sample = {
        __atomic_load_n(&stats->structures.allocations, __ATOMIC_RELAXED),
        __atomic_load_n(&stats->structures.allocated_bytes, __ATOMIC_RELAXED),
        __atomic_load_n(&stats->malloc.allocations, __ATOMIC_RELAXED)
            + __atomic_load_n(&stats->mmap.allocations, __ATOMIC_RELAXED),
        __atomic_load_n(&stats->malloc.allocated_bytes, __ATOMIC_RELAXED)
            + __atomic_load_n(&stats->mmap.allocated_bytes, __ATOMIC_RELAXED),
        __atomic_load_n(&stats->malloc.used_bytes, __ATOMIC_RELAXED)
            + __atomic_load_n(&stats->mmap.used_bytes, __ATOMIC_RELAXED),
        __atomic_load_n(&stats->malloc.padding_bytes, __ATOMIC_RELAXED)
            + __atomic_load_n(&stats->mmap.padding_bytes, __ATOMIC_RELAXED),
    };
    return sample;
}

static void pulse_end(void)
{
    while (registered != NULL) {
        struct registered *next = registered->next;
        free(registered);
        registered = next;
    }
}

/* Whether the bytes are those of `expected` elements, apart from what threads may not have added yet. */
static bool is_about(size_t bytes, size_t expected, size_t size, size_t threads)
{
    size_t slack = 63 * threads * size;
    return bytes + slack >= expected * size && bytes <= expected * size + slack;
}

/* ---- a cache of pages ---------------------------------------------------------------------------------------- */

struct page {
    uint64_t metric;
    struct page *previous, *next;
    char data[40];
};

enum { PAGES = 1000 };

static struct aral_statistics cache_statistics; /* zero, as a static variable is */

static void fields_are_live_without_a_call(void)
{
    ARAL *ar = aral_create("pages", sizeof(struct page), 0, 0, &cache_statistics, NULL, NULL, false, false, true);
    pulse_register_statistics(&cache_statistics, "page cache");
    assert(pulse_read("page cache").used == 0 && pulse_read("page cache").structures == 1);
    static struct page *pages[PAGES];
    for (size_t at = 0; at < PAGES; at++) {
        /* A few elements are exact. */
        assert(at >= 16 || pulse_read("page cache").used == at * sizeof(struct page));
        pages[at] = aral_callocz(ar);
        struct sample now = pulse_read("page cache");
        assert(is_about(now.used, at + 1, sizeof(struct page), 1) && now.allocated >= now.used);
        assert(now.structures == 1 + now.pages && now.structures_bytes >= sizeof(struct page *));
    }
    assert(is_watched() || pulse_read("page cache").pages > 1);
    for (size_t at = 0; at < PAGES; at++) {
        aral_freez(ar, pages[at]);
        assert(is_about(pulse_read("page cache").used, PAGES - at - 1, sizeof(struct page), 1));
    }
    assert(pulse_read("page cache").used == 0);
    aral_destroy(ar);
    struct sample last = pulse_read("page cache");
    assert(last.structures + last.structures_bytes + last.pages + last.allocated + last.used + last.padding == 0);
}

/* ---- threads ------------------------------------------------------------------------------------------------- */

enum { THREADS = 6, KINDS = 5, EACH = 2000 };

struct collector {
    pthread_t thread;
    ARAL **kinds;
    pthread_barrier_t *barrier;
    void *elements[KINDS][EACH];
};

static size_t size_of_kind(size_t kind)
{
    return 16 + 24 * kind;
}

static void *collects(void *argument)
{
    struct collector *self = argument;
    for (size_t at = 0; at < EACH; at++) {
        for (size_t kind = 0; kind < KINDS; kind++) {
            bool long_lived = (at + kind) % 4 == 0;
            self->elements[kind][at] =
                long_lived ? aral_mallocz_marked(self->kinds[kind]) : aral_mallocz(self->kinds[kind]);
        }
    }
    pthread_barrier_wait(self->barrier); /* the main thread reads */
    pthread_barrier_wait(self->barrier);
    for (size_t kind = 0; kind < KINDS; kind++) {
        for (size_t at = 0; at < EACH; at++) {
            aral_freez(self->kinds[kind], self->elements[kind][at]);
        }
    }
    pthread_barrier_wait(self->barrier);
    pthread_barrier_wait(self->barrier);
    return NULL;
}

/* Each thread uses several ARALs of several structures. */
static void fields_follow_threads_that_use_several(void)
{
    struct aral_statistics shared = {0}, mapped = {0};
    ARAL *kinds[KINDS];
    for (size_t kind = 0; kind < KINDS; kind++) {
        kinds[kind] = aral_create("kind", size_of_kind(kind), 0, 0, kind == 1 ? &mapped : &shared, NULL, NULL,
                                  kind == 1, false, false);
    }
    pthread_barrier_t barrier;
    assert(pthread_barrier_init(&barrier, NULL, THREADS + 1) == 0);
    static struct collector collectors[THREADS];
    for (size_t at = 0; at < THREADS; at++) {
        collectors[at].kinds = kinds;
        collectors[at].barrier = &barrier;
        assert(pthread_create(&collectors[at].thread, NULL, collects, &collectors[at]) == 0);
    }
    pulse_register(kinds[1], "mapped kind");
    pthread_barrier_wait(&barrier);
    size_t total = 0, element_bytes = 0;
    for (size_t kind = 0; kind < KINDS; kind++) {
        assert(aral_used_bytes(kinds[kind]) == THREADS * EACH * size_of_kind(kind));
        if (kind != 1) {
            total += THREADS * EACH * size_of_kind(kind);
            element_bytes += size_of_kind(kind);
        }
    }
    /* 1,023 while other threads are adding theirs. */
    size_t slack = 1023 * THREADS * element_bytes;
    size_t used = __atomic_load_n(&shared.malloc.used_bytes, __ATOMIC_RELAXED);
    assert(used + slack >= total && used <= total + slack);
    used = pulse_read("mapped kind").used;
    assert(used + 1023 * THREADS * size_of_kind(1) >= THREADS * EACH * size_of_kind(1));
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    used = __atomic_load_n(&shared.malloc.used_bytes, __ATOMIC_RELAXED);
    assert(used <= slack);
    pthread_barrier_wait(&barrier);
    for (size_t at = 0; at < THREADS; at++) {
        assert(pthread_join(collectors[at].thread, NULL) == 0);
    }
    pthread_barrier_destroy(&barrier);
    /* What a thread had not added is added at its end. */
    assert(shared.malloc.used_bytes == 0 && mapped.mmap.used_bytes == 0);
    for (size_t kind = 0; kind < KINDS; kind++) {
        aral_destroy(kinds[kind]);
    }
    assert(shared.structures.allocations == 0 && shared.malloc.allocated_bytes == 0);
    assert(mapped.structures.allocations == 0 && mapped.mmap.allocated_bytes == 0);
}

/* More ARALs than a thread has places for. */
static void a_thread_may_use_many_in_turn(void)
{
    enum { MANY = 40, ROUNDS = 100 };
    struct aral_statistics shared = {0};
    ARAL *arals[MANY];
    static void *elements[MANY][ROUNDS];
    for (size_t at = 0; at < MANY; at++) {
        arals[at] = aral_create("many", 32, 0, 0, &shared, NULL, NULL, true, false, false);
    }
    for (size_t round = 0; round < ROUNDS; round++) {
        for (size_t at = 0; at < MANY; at++) {
            elements[at][round] = round % 2 == 0 ? aral_mallocz(arals[at]) : aral_mallocz_marked(arals[at]);
        }
    }
    assert(aral_used_bytes_from_stats(&shared) == MANY * ROUNDS * 32);
    for (size_t at = 0; at < MANY; at += 2) {
        for (size_t round = 0; round < ROUNDS; round++) {
            aral_freez(arals[at], elements[at][round]);
        }
        aral_destroy(arals[at]);
    }
    assert(aral_used_bytes_from_stats(&shared) == MANY / 2 * ROUNDS * 32);
    for (size_t at = 1; at < MANY; at += 2) {
        for (size_t round = 0; round < ROUNDS; round++) {
            aral_freez(arals[at], elements[at][round]);
        }
        aral_destroy(arals[at]);
    }
    assert(shared.structures.allocations == 0 && shared.mmap.used_bytes == 0 && shared.mmap.allocated_bytes == 0);
}

/* ---- by size, and a query ------------------------------------------------------------------------------------ */

static void buffers_by_size_and_a_query(void)
{
    pulse_register_statistics(aral_by_size_statistics(), "by-size");
    ARAL *small = aral_by_size_acquire(48), *large = aral_by_size_acquire(4096);
    void *one = aral_callocz_marked(small), *other = aral_mallocz(large);
    assert(pulse_read("by-size").used == 48 + 4096);
    aral_unmark_allocation(small, one);
    aral_freez(small, one);
    aral_freez(large, other);
    assert(pulse_read("by-size").used == 0);
    aral_by_size_release(small);
    aral_by_size_release(large);

    ONEWAYALLOC *owa = onewayalloc_create(0);
    char **names = onewayalloc_callocz(owa, 100, sizeof *names);
    for (size_t at = 0; at < 100; at++) {
        names[at] = onewayalloc_strdupz(owa, "dimension");
    }
    double *values = onewayalloc_memdupz(owa, (double[]){1, 2}, 2 * sizeof *values);
    values = onewayalloc_doublesize(owa, values, 2 * sizeof *values);
    assert(values[1] == 2 && strcmp(names[99], "dimension") == 0);
    onewayalloc_freez(owa, names);
    assert(onewayalloc_allocated_memory() > 0);
    onewayalloc_destroy(owa);
}

static void the_agents_own_tests_pass(void)
{
    assert(aral_unittest(1000) == 0);
    assert(aral_unittest_concurrency(4, 500) == 0);
    assert(aral_stress_test(2, 1000, 1) == 0);
}

int main(int count, char **arguments)
{
    if (count > 1 && strcmp(arguments[1], "--cases") == 0) {
        return 0;
    }
    fields_are_live_without_a_call();
    fields_follow_threads_that_use_several();
    a_thread_may_use_many_in_turn();
    buffers_by_size_and_a_query();
    the_agents_own_tests_pass();
    pulse_end();
    return 0;
}
