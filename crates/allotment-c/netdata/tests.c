/* aral_unittest(), aral_unittest_concurrency() and aral_stress_test(). */
#include "internal.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

struct element {
    size_t owner, number;
    unsigned char filling[24];
};

/* A thread of a test. Its neighbour frees what it puts into `handed`. */
struct worker {
    pthread_t thread;
    size_t index, elements;
    ARAL *ar;
    struct element **places;
    struct worker *neighbour;
    pthread_mutex_t lock; /* of the two below */
    struct element **handed;
    size_t handed_count;
    const bool *stop;
    size_t allocated, freed; /* atomic: the stress test reads them meanwhile */
    int errors;
};

static void count(size_t *counter)
{
    __atomic_store_n(counter, *counter + 1, __ATOMIC_RELAXED);
}

static void check(struct worker *self, bool holds, const char *what)
{
    if (!holds) {
        self->errors += 1;
        fprintf(stderr, "ARAL '%s', thread %zu: %s\n", aral_name(self->ar), self->index, what);
    }
}

static void fill(struct worker *self, size_t from, size_t to, size_t step)
{
    for (size_t at = from; at < to; at += step) {
        struct element *element =
            (struct element *)(at % 3 == 0 ? aral_mallocz_marked(self->ar) : aral_mallocz(self->ar));
        element->owner = self->index;
        element->number = at;
        memset(element->filling, (int)(at % 251), sizeof element->filling);
        self->places[at] = element;
        count(&self->allocated);
    }
}

static struct element *take(struct worker *self, size_t at)
{
    struct element *element = self->places[at];
    self->places[at] = NULL;
    bool is_whole = element->owner == self->index && element->number == at;
    for (size_t byte = 0; byte < sizeof element->filling; byte++) {
        is_whole = is_whole && element->filling[byte] == at % 251;
    }
    check(self, is_whole, "an element has changed");
    return element;
}

static void empty(struct worker *self, size_t from, size_t to, size_t step)
{
    for (size_t at = from; at < to; at += step) {
        aral_freez(self->ar, take(self, at));
        count(&self->freed);
    }
}

/* Fills, replaces parts, and empties. */
static void cycle(struct worker *self)
{
    fill(self, 0, self->elements, 1);
    for (size_t divisor = 5; divisor >= 2; divisor--) {
        empty(self, 0, self->elements / divisor, 1);
        fill(self, 0, self->elements / divisor, 1);
    }
    for (size_t step = 50; step >= 10; step -= 10) {
        empty(self, 0, self->elements, step);
        fill(self, 0, self->elements, step);
    }
    if (self->neighbour != self) {
        pthread_mutex_lock(&self->neighbour->lock);
        for (size_t at = 0; at < self->elements && self->neighbour->handed_count < self->elements; at += 7) {
            self->neighbour->handed[self->neighbour->handed_count++] = take(self, at);
        }
        pthread_mutex_unlock(&self->neighbour->lock);
    }
    for (size_t at = 0; at < self->elements; at++) {
        if (self->places[at] != NULL) {
            empty(self, at, at + 1, 1);
        }
    }
}

static void free_handed(struct worker *self)
{
    pthread_mutex_lock(&self->lock);
    while (self->handed_count > 0) {
        aral_freez(self->ar, self->handed[--self->handed_count]);
        count(&self->freed);
    }
    pthread_mutex_unlock(&self->lock);
}

static void *work(void *argument)
{
    struct worker *self = (struct worker *)argument;
    do {
        cycle(self);
        free_handed(self);
    } while (self->stop != NULL && !__atomic_load_n(self->stop, __ATOMIC_RELAXED));
    return NULL;
}

static void *zeroed(size_t number, size_t size)
{
    void *block = calloc(number == 0 ? 1 : number, size);
    if (block == NULL) {
        netdata_fail(ALLOT_SYSTEM, size, "slab", "", "malloc has no memory for a test of ARAL");
    }
    return block;
}

static double seconds_now(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static size_t sum(const struct worker *workers, size_t threads, bool freed)
{
    size_t total = 0;
    for (size_t at = 0; at < threads; at++) {
        total += __atomic_load_n(freed ? &workers[at].freed : &workers[at].allocated, __ATOMIC_RELAXED);
    }
    return total;
}

static void print_rates(const struct worker *workers, size_t threads, size_t seconds)
{
    size_t allocated = 0, freed = 0;
    double before = seconds_now();
    for (size_t second = 0; second < seconds; second++) {
        struct timespec one = {1, 0};
        (void)nanosleep(&one, NULL);
        double now = seconds_now();
        size_t allocated_now = sum(workers, threads, false), freed_now = sum(workers, threads, true);
        printf("ARAL executes %.2f M malloc and %.2f M free operations/s\n",
               (double)(allocated_now - allocated) / 1e6 / (now - before),
               (double)(freed_now - freed) / 1e6 / (now - before));
        (void)fflush(stdout);
        allocated = allocated_now;
        freed = freed_now;
        before = now;
    }
}

/* Runs `threads` threads on an ARAL: each one cycle, or cycles for this number of seconds. Returns the
 * number of errors. */
static int run(ARAL *ar, size_t threads, size_t elements, size_t seconds)
{
    struct worker *workers = (struct worker *)zeroed(threads, sizeof *workers);
    bool stop = false;
    for (size_t at = 0; at < threads; at++) {
        struct worker *self = &workers[at];
        self->index = at;
        self->elements = elements;
        self->ar = ar;
        self->places = (struct element **)zeroed(elements, sizeof *self->places);
        self->handed = (struct element **)zeroed(elements, sizeof *self->handed);
        self->neighbour = &workers[(at + 1) % threads];
        self->stop = seconds > 0 ? &stop : NULL;
        (void)pthread_mutex_init(&self->lock, NULL);
    }
    size_t started = 0;
    while (started < threads && pthread_create(&workers[started].thread, NULL, work, &workers[started]) == 0) {
        started += 1;
    }
    if (seconds > 0) {
        print_rates(workers, threads, seconds);
    }
    __atomic_store_n(&stop, true, __ATOMIC_RELAXED);
    int errors = 0;
    for (size_t at = 0; at < started; at++) {
        (void)pthread_join(workers[at].thread, NULL);
    }
    if (started < threads) {
        fprintf(stderr, "ARAL '%s': started %zu of %zu threads\n", aral_name(ar), started, threads);
        errors += 1;
    }
    for (size_t at = 0; at < threads; at++) {
        free_handed(&workers[at]);
        errors += workers[at].errors;
    }
    size_t allocated = sum(workers, threads, false), freed = sum(workers, threads, true);
    check(&workers[0], allocated == freed, "not all elements were freed");
    check(&workers[0], aral_used_bytes(ar) == 0, "aral_used_bytes() is not zero");
    errors += workers[0].errors > 0 ? 1 : 0;
    for (size_t at = 0; at < threads; at++) {
        (void)pthread_mutex_destroy(&workers[at].lock);
        free(workers[at].places);
        free(workers[at].handed);
    }
    free(workers);
    return errors;
}

static int run_on_new(const char *name, bool mapped, size_t threads, size_t elements, size_t seconds)
{
    struct aral_statistics statistics;
    memset(&statistics, 0, sizeof statistics);
    ARAL *ar =
        aral_create(name, sizeof(struct element), 16, 8192, &statistics, NULL, NULL, mapped, false, false);
    int errors = run(ar, threads == 0 ? 1 : threads, elements, seconds);
    aral_destroy(ar);
    if (statistics.structures.allocations != 0 || aral_used_bytes_from_stats(&statistics) != 0) {
        fprintf(stderr, "ARAL '%s': its statistics are not zero after its end\n", name);
        errors += 1;
    }
    return errors;
}

ANCESTOR int aral_unittest(size_t elements)
{
    return run_on_new("aral-test-mmap", true, 1, elements, 0) + run_on_new("aral-test-malloc", false, 1, elements, 0);
}

ANCESTOR int aral_unittest_concurrency(size_t threads, size_t elements)
{
    return run_on_new("aral-threads-mmap", true, threads, elements, 0)
           + run_on_new("aral-threads-malloc", false, threads, elements, 0);
}

ANCESTOR int aral_stress_test(size_t threads, size_t elements, size_t seconds)
{
    printf("Running stress test of %zu threads, with %zu elements each, for %zu seconds...\n", threads, elements,
           seconds);
    double start = seconds_now();
    int errors = run_on_new("aral-stress-test", true, threads, elements, seconds == 0 ? 1 : seconds);
    printf("ARAL: used %zu threads for %.2f seconds, with %d errors\n", threads, seconds_now() - start, errors);
    return errors;
}
