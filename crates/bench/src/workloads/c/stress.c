/* The array allocator's stress test, in the shape of fixed_size/stress.rs: as a C program that was written for ARAL, and
 * the same with the C library's malloc. */

#include <allotment_netdata.h>

#include <stdint.h>
#include <stdlib.h>

typedef void *allocate(void *allocator);
typedef void release(void *allocator, void *object);

#define ALWAYS_INLINE __attribute__((always_inline)) static inline

ALWAYS_INLINE void *aral_allocate(void *ar)
{
    return aral_mallocz((ARAL *)ar);
}

ALWAYS_INLINE void aral_release(void *ar, void *object)
{
    aral_freez((ARAL *)ar, object);
}

/* A failure ends the process, as in netdata's mallocz(). */
ALWAYS_INLINE void *libc_allocate(void *size)
{
    void *object = malloc(*(const size_t *)size);
    if (object == NULL) {
        abort();
    }
    return object;
}

ALWAYS_INLINE void libc_release(void *size, void *object)
{
    (void)size;
    free(object);
}

/* Allocates objects and writes their first words. Returns their number. */
ALWAYS_INLINE size_t fill(allocate *alloc, void *allocator, void **places, size_t count, size_t step)
{
    size_t filled = 0;
    for (size_t index = 0; index < count; index += step) {
        uint64_t *object = (uint64_t *)alloc(allocator);
        *object = filled++;
        places[index] = object;
    }
    return filled;
}

ALWAYS_INLINE void empty(release *free_one, void *allocator, void **places, size_t count, size_t step)
{
    for (size_t index = 0; index < count; index += step) {
        free_one(allocator, places[index]);
    }
}

/* One cycle. The places are empty before and after. Returns the number of allocations. */
ALWAYS_INLINE size_t cycle(allocate *alloc, release *free_one, void *allocator, void **places, size_t elements)
{
    size_t allocated = fill(alloc, allocator, places, elements, 1);
    for (size_t divisor = 5; divisor >= 2; divisor--) {
        empty(free_one, allocator, places, elements / divisor, 1);
        allocated += fill(alloc, allocator, places, elements / divisor, 1);
    }
    for (size_t step = 50; step >= 10; step -= 10) {
        empty(free_one, allocator, places, elements, step);
        allocated += fill(alloc, allocator, places, elements, step);
    }
    empty(free_one, allocator, places, elements, 1);
    return allocated;
}

size_t workloads_c_stress_aral(void *ar, void **places, size_t elements)
{
    return cycle(aral_allocate, aral_release, ar, places, elements);
}

/* `size` points to the objects' size, in place of an allocator. */
size_t workloads_c_stress_libc(void *size, void **places, size_t elements)
{
    return cycle(libc_allocate, libc_release, size, places, elements);
}

/* What the rows in Rust need, with the arguments of a pointer and a size only. */
void *workloads_c_aral(size_t size)
{
    return aral_create("stress", size, 0, 0, NULL, NULL, NULL, true, false, false);
}

void workloads_c_aral_destroy(void *ar)
{
    aral_destroy((ARAL *)ar);
}
