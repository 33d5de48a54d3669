/* The functions of netdata's One Way Allocator do what its description says. */
#include <allotment_netdata.h>

#undef NDEBUG
#include <assert.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static bool is_aligned(const void *block, size_t align)
{
    return (uintptr_t)block % align == 0;
}

static void blocks_are_aligned_to_what_their_size_can_need_and_do_not_overlap(void)
{
    ONEWAYALLOC *owa = onewayalloc_create(0);
    enum { BLOCKS = 2000 };
    unsigned char *blocks[BLOCKS];
    for (size_t at = 0; at < BLOCKS; at++) {
        size_t size = at % 97;
        blocks[at] = onewayalloc_mallocz(owa, size);
        assert(is_aligned(blocks[at], size > 0 && size % 16 == 0 ? 16 : 8));
        memset(blocks[at], (int)(at % 251), size);
    }
    for (size_t at = 0; at < BLOCKS; at++) {
        for (size_t byte = 0; byte < at % 97; byte++) {
            assert(blocks[at][byte] == at % 251);
        }
        onewayalloc_freez(owa, blocks[at]);
    }
    onewayalloc_destroy(owa);
    onewayalloc_destroy(NULL);
}

static void texts_and_bytes_are_copied(void)
{
    ONEWAYALLOC *owa = onewayalloc_create(100);
    char text[] = "system.cpu";
    char *copy = onewayalloc_strdupz(owa, text);
    text[0] = 'S';
    assert(copy != text && strcmp(copy, "system.cpu") == 0);
    assert(onewayalloc_strdupz(owa, "")[0] == 0);
    assert(onewayalloc_strdupz(owa, NULL) == NULL);
    const double points[3] = {1.5, 2.5, 3.5};
    const double *same = onewayalloc_memdupz(owa, points, sizeof points);
    assert(same != points && memcmp(same, points, sizeof points) == 0);
    assert(onewayalloc_memdupz(owa, NULL, 0) != NULL);
    onewayalloc_destroy(owa);
}

/* Fills so much of an arena with ones. */
static void soil(ONEWAYALLOC *owa, size_t bytes)
{
    memset(onewayalloc_mallocz(owa, bytes), 0xff, bytes);
}

static void zeros_are_zeros_where_other_bytes_were(void)
{
    ONEWAYALLOC *owa = onewayalloc_create(64 << 10);
    soil(owa, 32 << 10);
    onewayalloc_reset(owa);
    const unsigned char *zeros = onewayalloc_callocz(owa, 1000, 30);
    for (size_t at = 0; at < 30000; at++) {
        assert(zeros[at] == 0);
    }
    assert(onewayalloc_callocz(owa, 0, 8) != NULL);
    onewayalloc_destroy(owa);
}

static void a_reset_makes_the_same_memory_usable_again(void)
{
    ONEWAYALLOC *owa = onewayalloc_create(256 << 10);
    char *first = onewayalloc_mallocz(owa, 100);
    soil(owa, 200 << 10);
    size_t held = onewayalloc_allocated_memory();
    for (int round = 0; round < 1000; round++) {
        onewayalloc_reset(owa);
        assert(onewayalloc_mallocz(owa, 100) == first);
        soil(owa, 200 << 10);
        assert(onewayalloc_allocated_memory() == held);
    }
    onewayalloc_destroy(owa);
}

static void twice_the_size_keeps_the_bytes(void)
{
    ONEWAYALLOC *owa = onewayalloc_create(0);
    size_t size = 24;
    unsigned char *bytes = onewayalloc_mallocz(owa, size);
    for (size_t at = 0; at < size; at++) {
        bytes[at] = (unsigned char)at;
    }
    for (int round = 0; round < 12; round++) {
        if (round % 2 == 0) {
            (void)onewayalloc_mallocz(owa, 8); /* it is not the last one then */
        }
        bytes = onewayalloc_doublesize(owa, bytes, size);
        for (size_t at = size; at < 2 * size; at++) {
            bytes[at] = (unsigned char)at;
        }
        size *= 2;
        for (size_t at = 0; at < size; at++) {
            assert(bytes[at] == (unsigned char)at);
        }
    }
    assert(onewayalloc_doublesize(owa, NULL, 100) != NULL);
    onewayalloc_destroy(owa);
}

static void products_are_checked(void)
{
    assert(onewayalloc_mul_or_fatal(3, 5, "here") == 15);
    assert(onewayalloc_mul_or_fatal(0, SIZE_MAX, "here") == 0);
    assert(onewayalloc_mul3_or_fatal(3, 5, 7, NULL) == 105);
}

static void all_bytes_of_all_threads_are_counted(void)
{
    assert(onewayalloc_allocated_memory() == 0);
    ONEWAYALLOC *owa = onewayalloc_create(1 << 20);
    size_t one = onewayalloc_allocated_memory();
    assert(one >= 1 << 20);
    ONEWAYALLOC *other = onewayalloc_create(0);
    (void)onewayalloc_mallocz(other, 5 << 20);
    assert(onewayalloc_allocated_memory() >= one + (5 << 20));
    onewayalloc_destroy(owa);
    onewayalloc_destroy(other);
    assert(onewayalloc_allocated_memory() == 0);
}

/* A context query: a virtual chart of structures, names and points, which all go when it has been answered. */
struct dimension {
    struct dimension *next;
    char *name;
    double *points;
    size_t capacity, used;
};

static void *query(void *argument)
{
    size_t seed = (size_t)(uintptr_t)argument;
    for (int round = 0; round < 20; round++) {
        ONEWAYALLOC *owa = onewayalloc_create(round % 2 == 0 ? 0 : 100000);
        struct dimension *chart = NULL;
        for (size_t at = 0; at < 500; at++) {
            char name[32];
            snprintf(name, sizeof name, "dimension-%zu-%zu", seed, at);
            struct dimension *dimension = onewayalloc_callocz(owa, 1, sizeof *dimension);
            assert(dimension->next == NULL && dimension->used == 0);
            dimension->name = onewayalloc_strdupz(owa, name);
            dimension->capacity = 2;
            dimension->points = onewayalloc_mallocz(owa, dimension->capacity * sizeof(double));
            for (size_t point = 0; point < 10; point++) {
                if (dimension->used == dimension->capacity) {
                    dimension->points =
                        onewayalloc_doublesize(owa, dimension->points, dimension->capacity * sizeof(double));
                    dimension->capacity *= 2;
                }
                dimension->points[dimension->used++] = (double)(seed * at + point);
            }
            dimension->next = chart;
            chart = dimension;
        }
        size_t at = 500;
        for (const struct dimension *dimension = chart; dimension != NULL; dimension = dimension->next) {
            char name[32];
            snprintf(name, sizeof name, "dimension-%zu-%zu", seed, --at);
            assert(strcmp(dimension->name, name) == 0);
            for (size_t point = 0; point < 10; point++) {
                assert(dimension->points[point] == (double)(seed * at + point));
            }
        }
        assert(at == 0);
        onewayalloc_destroy(owa);
    }
    return NULL;
}

static void queries_of_several_threads_do_not_disturb_each_other(void)
{
    pthread_t threads[8];
    for (size_t at = 0; at < 8; at++) {
        assert(pthread_create(&threads[at], NULL, query, (void *)(uintptr_t)(at + 1)) == 0);
    }
    for (size_t at = 0; at < 8; at++) {
        assert(pthread_join(threads[at], NULL) == 0);
    }
    assert(onewayalloc_allocated_memory() == 0);
}

static void handler(const allot_error *error)
{
    fprintf(stderr, "handler: kind %d, requested %zu, name %s: %s\n", error->kind, error->requested, error->name,
            error->message);
}

/* The misuse of this name, which has to end the process. */
static void misuse(const char *name)
{
    ONEWAYALLOC *owa = onewayalloc_create(0);
    /* The compiler must not see that these are too much. */
    volatile size_t huge = SIZE_MAX;
    if (strcmp(name, "product") == 0) {
        (void)onewayalloc_mul_or_fatal(huge / 2, 3, "points of a query");
    } else if (strcmp(name, "third-factor") == 0) {
        (void)onewayalloc_mul3_or_fatal(huge / 8, 2, 5, "points of a query");
    } else if (strcmp(name, "handled") == 0) {
        (void)allot_set_failure_handler(handler);
        (void)onewayalloc_mul_or_fatal(huge, 2, "points of a query");
    } else if (strcmp(name, "calloc") == 0) {
        (void)onewayalloc_callocz(owa, huge / 2, 4);
    } else if (strcmp(name, "double") == 0) {
        (void)onewayalloc_doublesize(owa, onewayalloc_mallocz(owa, 8), huge / 2 + 1);
    } else if (strcmp(name, "too-much") == 0) {
        (void)onewayalloc_mallocz(owa, huge / 2);
    } else if (strcmp(name, "no-allocator") == 0) {
        (void)onewayalloc_mallocz(NULL, 8);
    }
}

int main(int count, char **arguments)
{
    if (count > 1 && strcmp(arguments[1], "--cases") == 0) {
        puts("product\tpoints of a query: 9223372036854775807 times 3 bytes exceeds the address space");
        puts("third-factor\tpoints of a query: ");
        puts("handled\thandler: kind 1, requested 18446744073709551615, name points of a query: points of a query");
        puts("calloc\tonewayalloc_callocz: ");
        puts("double\tonewayalloc_doublesize: 2 times 9223372036854775808 bytes");
        puts("too-much\tallotment: arena");
        puts("no-allocator\tallotment: ");
        return 0;
    }
    if (count > 1) {
        misuse(arguments[1]);
        return 0;
    }
    all_bytes_of_all_threads_are_counted();
    blocks_are_aligned_to_what_their_size_can_need_and_do_not_overlap();
    texts_and_bytes_are_copied();
    zeros_are_zeros_where_other_bytes_were();
    a_reset_makes_the_same_memory_usable_again();
    twice_the_size_keeps_the_bytes();
    products_are_checked();
    queries_of_several_threads_do_not_disturb_each_other();
    return 0;
}
