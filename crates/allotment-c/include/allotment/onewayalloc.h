/* netdata's One Way Allocator under its own names: an ONEWAYALLOC is an allot_arena.
 * allotment_netdata.h has the rules for all functions.
 */
#ifndef ALLOTMENT_ONEWAYALLOC_H
#define ALLOTMENT_ONEWAYALLOC_H

#include "ancestors.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Memory of one task on one thread, freed together. Blocks of a multiple of 16 bytes are aligned to
 * 16, others to 8. Allocating is inline and takes no lock. Chunks come warm from the process's
 * recycler. */
typedef void ONEWAYALLOC;

/* A budget without a limit, which counts the bytes of all ONEWAYALLOCs. */
ALLOT_NETDATA_SHARED allot_budget *allot_netdata_arena_bytes;

static inline allot_budget *allot_netdata_arena_budget(void)
{
    allot_budget *budget = __atomic_load_n(&allot_netdata_arena_bytes, __ATOMIC_ACQUIRE);
    if (ALLOT_UNLIKELY(budget == NULL)) {
        allot_budget *made = allot_budget_create(SIZE_MAX);
        if (__atomic_compare_exchange_n(
                &allot_netdata_arena_bytes, &budget, made, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
            budget = made;
        } else {
            allot_budget_destroy(made); /* another thread stored its budget first */
        }
    }
    return budget;
}

/* The arena, for the functions of allotment.h. */
static inline allot_arena *allot_netdata_arena(ONEWAYALLOC *owa)
{
    return (allot_arena *)owa;
}

/* Creates an arena whose first chunk has room for `size_hint` bytes. 0 means one hardware page. */
static inline ONEWAYALLOC *onewayalloc_create(size_t size_hint)
{
    allot_options options;
    memset(&options, 0, sizeof options);
    options.budget = allot_netdata_arena_budget();
    options.hint = size_hint;
    return allot_arena_create(&options);
}

/* Frees the arena and everything that was allocated from it. NULL is ignored. */
static inline void onewayalloc_destroy(ONEWAYALLOC *owa)
{
    allot_arena_destroy(allot_netdata_arena(owa));
}

/* Frees everything that was allocated, and keeps one chunk: the newest of at most 1 MiB, or with a
 * hint, of at most 2 MiB more than the larger of 1 MiB and the hinted chunk. Its bytes are not
 * cleared. */
static inline void onewayalloc_reset(ONEWAYALLOC *owa)
{
    allot_arena_reset(allot_netdata_arena(owa));
}

__attribute__((noreturn, cold)) static inline void allot_netdata_product_fails(
    const char *context, size_t one, size_t other)
{
    char message[256];
    context = context != NULL ? context : "onewayalloc";
    snprintf(message, sizeof message, "%.100s: %zu times %zu bytes exceeds the address space; ask for less",
             context, one, other);
    allot_netdata_fail(ALLOT_SIZE_OVERFLOW, SIZE_MAX, "arena", context, message);
}

/* Returns nmemb * size. If that overflows size_t, calls the failure handler with `context` in the
 * message. */
static inline size_t onewayalloc_mul_or_fatal(size_t nmemb, size_t size, const char *context)
{
    size_t product;
    if (ALLOT_UNLIKELY(__builtin_mul_overflow(nmemb, size, &product))) {
        allot_netdata_product_fails(context, nmemb, size);
    }
    return product;
}

static inline size_t onewayalloc_mul3_or_fatal(size_t nmemb1, size_t nmemb2, size_t size, const char *context)
{
    return onewayalloc_mul_or_fatal(onewayalloc_mul_or_fatal(nmemb1, nmemb2, context), size, context);
}

/* Uninitialised memory. */
static inline void *onewayalloc_mallocz(ONEWAYALLOC *owa, size_t size)
{
    return allot_arena_alloc_aligned(allot_netdata_arena(owa), size, allot_netdata_align(size));
}

/* Zeroed memory for `nmemb` objects of `size` bytes. */
static inline void *onewayalloc_callocz(ONEWAYALLOC *owa, size_t nmemb, size_t size)
{
    size_t bytes = onewayalloc_mul_or_fatal(nmemb, size, "onewayalloc_callocz");
    return memset(onewayalloc_mallocz(owa, bytes), 0, bytes);
}

/* A copy of `size` bytes. */
static inline void *onewayalloc_memdupz(ONEWAYALLOC *owa, const void *src, size_t size)
{
    void *copy = onewayalloc_mallocz(owa, size);
    return size == 0 ? copy : memcpy(copy, src, size);
}

/* A copy of the string. Returns NULL for NULL. */
static inline char *onewayalloc_strdupz(ONEWAYALLOC *owa, const char *s)
{
    return s == NULL ? NULL : (char *)onewayalloc_memdupz(owa, s, strlen(s) + 1);
}

/* Does nothing: memory is freed with its arena. allot_arena_free_sized(), which takes the size, can
 * reclaim the newest object. */
static inline void onewayalloc_freez(ONEWAYALLOC *owa, const void *ptr)
{
    (void)owa;
    (void)ptr;
}

/* Resizes a block from `oldsize` bytes to twice that. The old bytes are kept, the new ones are
 * uninitialised. The arena's newest block grows in place if its chunk has room. Otherwise the block
 * moves, and the old memory must not be used any more. For NULL, allocates twice `oldsize`
 * bytes. */
static inline void *onewayalloc_doublesize(ONEWAYALLOC *owa, const void *src, size_t oldsize)
{
    size_t twice = onewayalloc_mul_or_fatal(2, oldsize, "onewayalloc_doublesize");
    if (src == NULL) {
        return onewayalloc_mallocz(owa, twice);
    }
    return allot_arena_resize(
        allot_netdata_arena(owa), (void *)(uintptr_t)src, oldsize, twice, allot_netdata_align(oldsize));
}

/* The bytes that all ONEWAYALLOCs of the process hold. */
static inline size_t onewayalloc_allocated_memory(void)
{
    allot_budget *budget = __atomic_load_n(&allot_netdata_arena_bytes, __ATOMIC_ACQUIRE);
    return budget == NULL ? 0 : allot_budget_used(budget);
}

#ifdef __cplusplus
}
#endif

#endif
