/* The stress test of the Array Allocator with its own functions: threads share one allocator. Each fills,
 * replaces and frees elements, passes some to its neighbour to free, and finds every element unchanged. */
#include <allotment_netdata.h>

#undef NDEBUG
#include <assert.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 4, ELEMENTS = 1000, CYCLES = 6 };

struct element {
    size_t thread, number;
    uint64_t filling[6];
};

struct worker {
    pthread_t thread;
    size_t index;
    ARAL *ar;
    struct element *places[ELEMENTS];
    /* What the neighbour left here to be freed. */
    pthread_mutex_t lock;
    struct element *handed[ELEMENTS];
    size_t handed_count;
};

static struct worker workers[THREADS];

static void fill(struct worker *self, size_t from, size_t to, size_t step)
{
    for (size_t at = from; at < to; at += step) {
        struct element *element = at % 3 == 0 ? aral_mallocz_marked(self->ar) : aral_mallocz(self->ar);
        element->thread = self->index;
        element->number = at;
        memset(element->filling, (int)(at % 251), sizeof element->filling);
        self->places[at] = element;
    }
}

static struct element *taken(struct worker *self, size_t at)
{
    struct element *element = self->places[at];
    self->places[at] = NULL;
    assert(element->thread == self->index && element->number == at);
    const unsigned char *bytes = (const unsigned char *)element->filling;
    for (size_t byte = 0; byte < sizeof element->filling; byte++) {
        assert(bytes[byte] == at % 251);
    }
    return element;
}

static void empty(struct worker *self, size_t from, size_t to, size_t step)
{
    for (size_t at = from; at < to; at += step) {
        aral_freez(self->ar, taken(self, at));
    }
}

static void hand_over(struct worker *self, size_t step)
{
    struct worker *neighbour = &workers[(self->index + 1) % THREADS];
    pthread_mutex_lock(&neighbour->lock);
    for (size_t at = 0; at < ELEMENTS && neighbour->handed_count < ELEMENTS; at += step) {
        neighbour->handed[neighbour->handed_count++] = taken(self, at);
    }
    pthread_mutex_unlock(&neighbour->lock);
    for (size_t at = 0; at < ELEMENTS; at += step) {
        if (self->places[at] == NULL) {
            fill(self, at, at + 1, 1);
        }
    }
}

static void free_what_was_handed(struct worker *self)
{
    pthread_mutex_lock(&self->lock);
    while (self->handed_count > 0) {
        aral_freez(self->ar, self->handed[--self->handed_count]);
    }
    pthread_mutex_unlock(&self->lock);
}

static void *work(void *argument)
{
    struct worker *self = argument;
    for (int cycle = 0; cycle < CYCLES; cycle++) {
        fill(self, 0, ELEMENTS, 1);
        for (size_t divisor = 5; divisor >= 2; divisor--) {
            empty(self, 0, ELEMENTS / divisor, 1);
            fill(self, 0, ELEMENTS / divisor, 1);
        }
        for (size_t step = 50; step >= 10; step -= 10) {
            empty(self, 0, ELEMENTS, step);
            fill(self, 0, ELEMENTS, step);
        }
        hand_over(self, 7);
        free_what_was_handed(self);
        empty(self, 0, ELEMENTS, 1);
    }
    return NULL;
}

static void stress(bool mapped, bool packing)
{
    ARAL *ar = aral_create("stress", sizeof(struct element), 16, 8192, NULL, NULL, NULL, mapped, false, false);
    allot_slab_set_packing(allot_netdata_slab(ar), packing); /* the defragmenter, at run time */
    memset(workers, 0, sizeof workers);
    for (size_t at = 0; at < THREADS; at++) {
        workers[at].index = at;
        workers[at].ar = ar;
        assert(pthread_mutex_init(&workers[at].lock, NULL) == 0);
    }
    for (size_t at = 0; at < THREADS; at++) {
        assert(pthread_create(&workers[at].thread, NULL, work, &workers[at]) == 0);
    }
    for (size_t at = 0; at < THREADS; at++) {
        assert(pthread_join(workers[at].thread, NULL) == 0);
    }
    size_t left = 0;
    for (size_t at = 0; at < THREADS; at++) {
        left += workers[at].handed_count;
    }
    assert(aral_used_bytes(ar) == left * sizeof(struct element));
    for (size_t at = 0; at < THREADS; at++) {
        free_what_was_handed(&workers[at]);
        pthread_mutex_destroy(&workers[at].lock);
    }
    assert(aral_used_bytes(ar) == 0);
    aral_destroy(ar);
}

int main(int count, char **arguments)
{
    if (count > 1 && strcmp(arguments[1], "--cases") == 0) {
        return 0;
    }
    stress(true, false);
    stress(true, true);
    stress(false, false);
    return 0;
}
