/* netdata's Array Allocator under its own names: an ARAL is an allot_slab. allotment_netdata.h has
 * the rules for all functions.
 */
#ifndef ALLOTMENT_ARAL_H
#define ALLOTMENT_ARAL_H

#include "ancestors.h"

#ifdef __cplusplus
extern "C" {
#endif
ALLOT_NETDATA_BEGIN

/* ---- creating -------------------------------------------------------------------------------- */

/* An ARAL has elements of one size, which any thread allocates and any thread frees. Elements of a
 * multiple of 16 bytes are aligned to 16, others to 8. Nothing is stored next to an element. */
typedef struct aral ARAL;

/* Bytes of a name that are stored. */
#define ARAL_MAX_NAME 23

struct aral_page_type_stats {
    size_t allocations;     /* pages held */
    size_t allocated_bytes; /* used and free elements, with their requested size */
    size_t used_bytes;
    size_t padding_bytes; /* lost to alignment and at the ends of pages */
};

/* The figures of all ARALs that were created with this structure. It must be zero before the first
 * of them is created, and live until the last is destroyed.
 *
 * The fields are kept up to date while the ARALs are used: read them at any time, without a call,
 * with relaxed atomic loads. A thread adds its elements when they have changed by a sixteenth of
 * the ARAL's elements or by 64, and the pages with them. So used_bytes may differ from the true
 * figure by up to 63 elements for each thread and ARAL. While several threads add at the same time,
 * it may differ by about 1,000 elements for each. If they do not, an ARAL with fewer than 16
 * elements is exact. What the calling thread has not added yet is added by the functions whose names
 * end in _statistics or _from_stats, and what a thread has not added when it ends is added then. */
struct aral_statistics {
    struct {
        size_t allocations; /* one for each ARAL, and one for the descriptor of each page */
        size_t allocated_bytes;
    } structures;

    struct aral_page_type_stats malloc;
    struct aral_page_type_stats mmap;
};

/* Creates an ARAL.
 *
 * name                   the first ARAL_MAX_NAME bytes are kept; also the slab's name in reports
 * initial_page_elements  ignored: pages begin with one hardware page and grow with use
 * max_page_size          bytes of the largest page, from one hardware page to 2 MiB. The library
 *                        raises or lowers other values to these limits; 0 means
 *                        aral_optimal_malloc_page_size()
 * stats                  a structure that several ARALs may share, or NULL for its own
 * filename, cache_dir    with `mmap`: pages lie in a file of this name and a number, in the existing
 *                        directory *cache_dir; the file is removed with the ARAL. If either is
 *                        NULL or empty, pages lie in no file
 * mmap                   pages are mapped; otherwise they come from malloc
 * lockless               ignored: calls on the thread's own cache never take a lock
 * dont_dump              core dumps exclude the pages, which are then mapped; core dumps exclude
 *                        pages of files in any case
 *
 * Constant time, whatever the number of ARALs. */
ARAL *aral_create(const char *name, size_t element_size, size_t initial_page_elements, size_t max_page_size,
                  struct aral_statistics *stats, const char *filename, const char **cache_dir, bool mmap,
                  bool lockless, bool dont_dump);

/* Destroys an ARAL of aral_create(). NULL is ignored. Free all elements first. Elements in use stay
 * valid: a line on standard error reports their number, and only allot_slab_free_anywhere() frees
 * them. The elements in the caches of other threads are released when these threads end, or move
 * their handle to another ARAL. The time depends on the ARAL's own pages only. */
void aral_destroy(ARAL *ar);

/* Returns the ARAL that the process shares for elements of this size, also above 1,024 bytes. The
 * first call for a size creates it. Constant time. */
ARAL *aral_by_size_acquire(size_t size);

/* Call it once for each aral_by_size_acquire(). The last call destroys the ARAL. NULL is
 * ignored. */
void aral_by_size_release(ARAL *ar);

const char *aral_name(ARAL *ar);

/* The size in bytes that aral_create() got. */
size_t aral_requested_element_size(ARAL *ar);

/* The distance from one element to the next, in bytes. */
size_t aral_actual_element_size(ARAL *ar);

/* The bytes of the largest page of an ARAL that is created with a max_page_size of 0: 64 KiB unless
 * set. The setter takes one hardware page to 2 MiB: less and more count as these. 0 restores the
 * default. */
size_t aral_optimal_malloc_page_size(void);
void aral_optimal_malloc_page_size_set(size_t size);

/* The slab, for the functions of allotment.h: allot_slab_set_packing() replaces the defragmenter,
 * and allot_slab_reserve() takes pages in advance. The fields of an aral_statistics do not count
 * elements that are allocated or freed by these functions. */
allot_slab *allot_netdata_slab(ARAL *ar);

/* ---- statistics ------------------------------------------------------------------------------ */

/* structures + used + free + padding is the total that one ARAL, or all that share a structure,
 * took from their sources and from malloc. Used and free bytes count elements with their requested
 * size. Elements in thread caches count as free.
 *
 * The functions for one ARAL are exact if no thread is inside a call on it. They visit its pages and
 * the threads that use it, so do not call them for each allocation. Those for a structure read its
 * fields, in constant time. */
size_t aral_structures_bytes(ARAL *ar);
size_t aral_used_bytes(ARAL *ar);
size_t aral_free_bytes(ARAL *ar);
size_t aral_padding_bytes(ARAL *ar);

size_t aral_structures_bytes_from_stats(struct aral_statistics *stats);
size_t aral_used_bytes_from_stats(struct aral_statistics *stats);
size_t aral_free_bytes_from_stats(struct aral_statistics *stats);
size_t aral_padding_bytes_from_stats(struct aral_statistics *stats);

size_t aral_by_size_structures_bytes(void);
size_t aral_by_size_used_bytes(void);
size_t aral_by_size_free_bytes(void);
size_t aral_by_size_padding_bytes(void);

/* The structure that the ARAL was created with, or its own. It stays where it is, so a program may
 * keep the pointer and read the fields later. Returns NULL for NULL. */
struct aral_statistics *aral_get_statistics(ARAL *ar);

/* The structure of all ARALs of aral_by_size_acquire(). */
struct aral_statistics *aral_by_size_statistics(void);

/* ---- elements -------------------------------------------------------------------------------- */

/* The ARAL that a thread allocates from most: the thread has a slab handle to it, which makes
 * aral_mallocz() and aral_freez() inline. Internal: programs must not use it. */
struct allot_netdata_thread {
    ARAL *aral;                /* NULL for none */
    allot_slab_handle *handle; /* to that ARAL's slab; NULL for none */
    int32_t balance;           /* elements allocated minus freed that the statistics do not have yet */
    int32_t most, least;       /* a larger or a smaller balance is added to the statistics */
};

#ifdef __GLIBC__
/* Accessed without a call, also in a shared library. */
#define ALLOT_NETDATA_THREAD __attribute__((tls_model("initial-exec")))
#else
#define ALLOT_NETDATA_THREAD
#endif
extern ALLOT_NETDATA_THREAD __thread struct allot_netdata_thread allot_netdata_thread;

void *allot_netdata_alloc_slowly(ARAL *ar);
void allot_netdata_free_slowly(ARAL *ar, void *ptr);
/* Returns `element`. */
void *allot_netdata_add_balance(void *element);

/* An element that will live long. Such elements lie on separate pages, so that they do not keep the
 * others' pages. */
void *aral_mallocz_marked(ARAL *ar);

/* A zeroed element. */
void *aral_callocz(ARAL *ar);
void *aral_callocz_marked(ARAL *ar);

/* Does nothing: the page of a marked element was chosen when it was allocated. */
void aral_unmark_allocation(ARAL *ar, void *ptr);

/* ---- tests ----------------------------------------------------------------------------------- */

/* Allocates, checks and frees `elements` elements in several orders, from ARALs with pages of each
 * kind. Returns 0, or the number of errors, each of which it prints on standard error. */
int aral_unittest(size_t elements);

/* The same elements by `threads` threads, which share an ARAL and free elements of each other. */
int aral_unittest_concurrency(size_t threads, size_t elements);

/* Runs the cycles of ARAL's stress test on `threads` threads for `seconds` seconds, and prints the
 * operations of each second. Returns 0, or the number of errors. */
int aral_stress_test(size_t threads, size_t elements, size_t seconds);

/* ISO C forbids static names in inline definitions of functions with external linkage, because each
 * unit has its own. No unit emits the definitions below. GCC has no option for this one warning. */
#if !defined(__clang__) && !defined(__cplusplus)
#pragma GCC system_header
#endif

/* An uninitialised element. Inline, like aral_freez(), for the ARAL to which the thread has its
 * handle; a call for others. */
ALLOT_NETDATA_INLINE void *aral_mallocz(ARAL *ar)
{
    struct allot_netdata_thread *mine = &allot_netdata_thread;
    void *element = mine->aral == ar ? allot_slab_handle_alloc_inline(mine->handle) : NULL;
    if (ALLOT_UNLIKELY(element == NULL)) {
        return allot_netdata_alloc_slowly(ar);
    }
    mine->balance += 1;
    return ALLOT_UNLIKELY(mine->balance > mine->most) ? allot_netdata_add_balance(element) : element;
}

/* Frees an element, on any thread. NULL is ignored. An element of another slab is named on standard
 * error, and the process is aborted. */
ALLOT_NETDATA_INLINE void aral_freez(ARAL *ar, void *ptr)
{
    struct allot_netdata_thread *mine = &allot_netdata_thread;
    if (ALLOT_UNLIKELY(mine->aral != ar || !allot_slab_handle_free_inline(mine->handle, ptr))) {
        allot_netdata_free_slowly(ar, ptr);
        return;
    }
    mine->balance -= 1;
    if (ALLOT_UNLIKELY(mine->balance < mine->least)) {
        (void)allot_netdata_add_balance(NULL);
    }
}

ALLOT_NETDATA_END
#ifdef __cplusplus
}
#endif

#endif
