/* netdata's One Way Allocator under its own names: an ONEWAYALLOC is an allot_arena.
 * allotment_netdata.h has the rules for all functions.
 */
#ifndef ALLOTMENT_ONEWAYALLOC_H
#define ALLOTMENT_ONEWAYALLOC_H

#include "ancestors.h"

#ifdef __cplusplus
extern "C" {
#endif
ALLOT_NETDATA_BEGIN

/* Memory of one task on one thread, freed together. Blocks of a multiple of 16 bytes are aligned to
 * 16, others to 8. Allocating is inline and takes no lock. Chunks come warm from the process's
 * recycler. */
typedef void ONEWAYALLOC;

/* The arena, for the functions of allotment.h. */
static inline allot_arena *allot_netdata_arena(ONEWAYALLOC *owa)
{
    return (allot_arena *)owa;
}

/* Creates an arena whose first chunk has room for `size_hint` bytes. 0 means one hardware page. */
ONEWAYALLOC *onewayalloc_create(size_t size_hint);

/* Frees the arena and everything that was allocated from it. NULL is ignored. */
void onewayalloc_destroy(ONEWAYALLOC *owa);

/* Frees everything that was allocated, and keeps one chunk: the newest of at most 1 MiB, or with a
 * hint, of at most 2 MiB more than the larger of 1 MiB and the hinted chunk. Its bytes are not
 * cleared. */
void onewayalloc_reset(ONEWAYALLOC *owa);

/* Returns nmemb * size. If that overflows size_t, calls the failure handler with `context` in the
 * message. */
size_t onewayalloc_mul_or_fatal(size_t nmemb, size_t size, const char *context);
size_t onewayalloc_mul3_or_fatal(size_t nmemb1, size_t nmemb2, size_t size, const char *context);

/* Does nothing: memory is freed with its arena. allot_arena_free_sized(), which takes the size, can
 * reclaim the newest object. */
ALLOT_NETDATA_INLINE void onewayalloc_freez(ONEWAYALLOC *owa, const void *ptr)
{
    (void)owa;
    (void)ptr;
}

/* Resizes a block from `oldsize` bytes to twice that. The old bytes are kept, the new ones are
 * uninitialised. The arena's newest block grows in place if its chunk has room. Otherwise the block
 * moves, and the old memory must not be used any more. For NULL, allocates twice `oldsize`
 * bytes. */
void *onewayalloc_doublesize(ONEWAYALLOC *owa, const void *src, size_t oldsize);

/* The bytes that all ONEWAYALLOCs of the process hold. */
size_t onewayalloc_allocated_memory(void);

/* ISO C forbids static names in inline definitions of functions with external linkage, because each
 * unit has its own. No unit emits the definitions below. GCC has no option for this one warning. */
#if !defined(__clang__) && !defined(__cplusplus)
#pragma GCC system_header
#endif

/* Uninitialised memory. */
ALLOT_NETDATA_INLINE void *onewayalloc_mallocz(ONEWAYALLOC *owa, size_t size)
{
    return allot_arena_alloc_aligned((allot_arena *)owa, size, ALLOT_NETDATA_ALIGN(size));
}

/* Zeroed memory for `nmemb` objects of `size` bytes. */
ALLOT_NETDATA_INLINE void *onewayalloc_callocz(ONEWAYALLOC *owa, size_t nmemb, size_t size)
{
    size_t bytes;
    if (ALLOT_UNLIKELY(__builtin_mul_overflow(nmemb, size, &bytes))) {
        bytes = onewayalloc_mul_or_fatal(nmemb, size, "onewayalloc_callocz");
    }
    void *block = allot_arena_alloc_aligned((allot_arena *)owa, bytes, ALLOT_NETDATA_ALIGN(bytes));
    return memset(block, 0, bytes);
}

/* A copy of `size` bytes. */
ALLOT_NETDATA_INLINE void *onewayalloc_memdupz(ONEWAYALLOC *owa, const void *src, size_t size)
{
    void *copy = allot_arena_alloc_aligned((allot_arena *)owa, size, ALLOT_NETDATA_ALIGN(size));
    return size == 0 ? copy : memcpy(copy, src, size);
}

/* A copy of the string. Returns NULL for NULL. */
ALLOT_NETDATA_INLINE char *onewayalloc_strdupz(ONEWAYALLOC *owa, const char *s)
{
    if (s == NULL) {
        return NULL;
    }
    size_t size = strlen(s) + 1;
    void *copy = allot_arena_alloc_aligned((allot_arena *)owa, size, ALLOT_NETDATA_ALIGN(size));
    return (char *)memcpy(copy, s, size);
}

ALLOT_NETDATA_END
#ifdef __cplusplus
}
#endif

#endif
