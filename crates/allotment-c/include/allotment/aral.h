/* netdata's Array Allocator under its own names: an ARAL is an allot_slab. allotment_netdata.h has
 * the rules for all functions.
 */
#ifndef ALLOTMENT_ARAL_H
#define ALLOTMENT_ARAL_H

#include "aral_pages.h"
#include "aral_thread_handle.h"

#include <inttypes.h>
#include <pthread.h>
#include <unistd.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- creating -------------------------------------------------------------------------------- */

/* An ARAL has elements of one size, which any thread allocates and any thread frees. Elements of a
 * multiple of 16 bytes are aligned to 16, others to 8. Nothing is stored next to an element. */
/* Bytes of a name that are stored. */
#define ARAL_MAX_NAME 23

struct aral_page_type_stats {
    size_t allocations;     /* pages held */
    size_t allocated_bytes; /* used and free elements, with their requested size */
    size_t used_bytes;
    size_t padding_bytes; /* lost to alignment and at the ends of pages */
};

/* The figures of all ARALs that were created with this structure. They are updated when such an
 * ARAL is created or destroyed, and by the functions whose names end in _statistics or _from_stats.
 * To read the fields, call aral_get_statistics() first. */
struct aral_statistics {
    struct {
        size_t allocations;
        size_t allocated_bytes;
    } structures;

    struct aral_page_type_stats malloc;
    struct aral_page_type_stats mmap;
};

/* The list of living ARALs of all units that share the variable below. Each ARAL points to its
 * list. */
struct allot_netdata_living {
    pthread_mutex_t lock;
    ARAL *first;
};

struct aral {
    allot_slab *slab;
    size_t element_size;
    struct aral_statistics *statistics;
    bool mapped;
    size_t holders; /* threads with a handle to it, and the creator: the last of them frees it */
    size_t users; /* of aral_by_size_acquire(); 0: created by aral_create() */
    char *file;   /* path of the file with the pages, or NULL */
    pid_t process;
    struct allot_netdata_living *living;
    ARAL *next, *previous;
    struct aral_statistics own;
    char name[ARAL_MAX_NAME + 1];
};

/* Each library that was loaded with RTLD_LOCAL has its own. */
ALLOT_NETDATA_SHARED struct allot_netdata_living allot_netdata_arals = {PTHREAD_MUTEX_INITIALIZER, NULL};
ALLOT_NETDATA_SHARED struct aral_statistics allot_netdata_by_size;
ALLOT_NETDATA_SHARED size_t allot_netdata_page_size;

/* The slab, for the functions of allotment.h: allot_slab_set_packing() replaces the defragmenter,
 * and allot_slab_reserve() takes pages in advance. */
static inline allot_slab *allot_netdata_slab(ARAL *ar)
{
    return ar == NULL ? NULL : ar->slab;
}

/* The bytes of the largest page of an ARAL that is created with a max_page_size of 0. */
static inline size_t aral_optimal_malloc_page_size(void)
{
    size_t size = __atomic_load_n(&allot_netdata_page_size, __ATOMIC_RELAXED);
    return size == 0 ? (size_t)64 << 10 : size;
}

/* 0 restores the default of 64 KiB. */
static inline void aral_optimal_malloc_page_size_set(size_t size)
{
    __atomic_store_n(&allot_netdata_page_size, size, __ATOMIC_RELAXED);
}

/* Creates an ARAL that is not on the list yet. Its pages lie in `file` in `directory`, unless
 * `file` is NULL. */
static inline ARAL *allot_netdata_aral(const char *name, size_t element_size, size_t max_page_size,
                                       struct aral_statistics *statistics, const char *file, const char *directory,
                                       bool mapped, bool dont_dump)
{
    ARAL *ar = (ARAL *)calloc(1, sizeof *ar);
    if (ar == NULL) {
        allot_netdata_fail(ALLOT_SYSTEM, sizeof *ar, "slab", "", "malloc has no memory for an ARAL's structure");
    }
    snprintf(ar->name, sizeof ar->name, "%s", name == NULL ? "" : name);
    ar->element_size = element_size;
    ar->statistics = statistics == NULL ? &ar->own : statistics;
    ar->mapped = mapped;
    ar->holders = 1;

    allot_source *source;
    if (dont_dump && file == NULL) {
        source = allot_netdata_undumped();
    } else if (!mapped) {
        source = allot_source_malloc();
    } else if (file != NULL) {
        source = allot_netdata_file(directory, file, &ar->file);
        ar->process = getpid();
    } else {
        source = allot_source_mmap();
    }

    /* A slab's name must be UTF-8, and the copy may end inside a multi-byte sequence. */
    char plain[ARAL_MAX_NAME + 1];
    for (size_t at = 0; at < sizeof plain; at++) {
        plain[at] = (unsigned char)ar->name[at] < 0x80 ? ar->name[at] : '?';
    }
    allot_options options;
    memset(&options, 0, sizeof options);
    options.name = plain[0] == 0 ? NULL : plain;
    options.source = source;
    options.max_page_bytes = max_page_size == 0 ? aral_optimal_malloc_page_size() : max_page_size;
    ar->slab = allot_slab_create(element_size, allot_netdata_align(element_size), &options);
    allot_source_destroy(source); /* the slab keeps it */
    return ar;
}

/* ---- statistics ------------------------------------------------------------------------------ */

/* Atomic stores: threads of the program may read the fields at any time. */
static inline void allot_netdata_store(struct aral_page_type_stats *to, const struct aral_page_type_stats *from)
{
    __atomic_store_n(&to->allocations, from->allocations, __ATOMIC_RELAXED);
    __atomic_store_n(&to->allocated_bytes, from->allocated_bytes, __ATOMIC_RELAXED);
    __atomic_store_n(&to->used_bytes, from->used_bytes, __ATOMIC_RELAXED);
    __atomic_store_n(&to->padding_bytes, from->padding_bytes, __ATOMIC_RELAXED);
}

/* Needs the lock. Sums up the living ARALs that were created with `into`. Returns their number. */
static inline size_t allot_netdata_sum_up(const struct allot_netdata_living *living, struct aral_statistics *into)
{
    struct aral_statistics sum;
    memset(&sum, 0, sizeof sum);
    for (ARAL *ar = living->first; ar != NULL; ar = ar->next) {
        if (ar->statistics == into) {
            allot_statistics its = allot_slab_statistics(ar->slab);
            struct aral_page_type_stats *pages = ar->mapped ? &sum.mmap : &sum.malloc;
            sum.structures.allocations += 1;
            sum.structures.allocated_bytes += sizeof *ar + (size_t)its.structure_bytes;
            pages->allocations += (size_t)its.chunks;
            pages->allocated_bytes += (size_t)(its.live_bytes + its.free_bytes);
            pages->used_bytes += (size_t)its.live_bytes;
            pages->padding_bytes += (size_t)its.wasted_bytes;
        }
    }
    __atomic_store_n(&into->structures.allocations, sum.structures.allocations, __ATOMIC_RELAXED);
    __atomic_store_n(&into->structures.allocated_bytes, sum.structures.allocated_bytes, __ATOMIC_RELAXED);
    allot_netdata_store(&into->malloc, &sum.malloc);
    allot_netdata_store(&into->mmap, &sum.mmap);
    return sum.structures.allocations;
}

/* Returns up-to-date figures. If no ARAL was created with `stats`, it may be a copy: returns it
 * unchanged. */
static inline struct aral_statistics allot_netdata_figures(
    struct allot_netdata_living *living, struct aral_statistics *stats)
{
    struct aral_statistics figures;
    memset(&figures, 0, sizeof figures);
    if (stats != NULL) {
        pthread_mutex_lock(&living->lock);
        bool is_in_use = false;
        for (ARAL *ar = living->first; ar != NULL && !is_in_use; ar = ar->next) {
            is_in_use = ar->statistics == stats;
        }
        if (is_in_use) {
            (void)allot_netdata_sum_up(living, stats);
        }
        figures = *stats;
        pthread_mutex_unlock(&living->lock);
    }
    return figures;
}

/* structures + used + free + padding is the total that one ARAL, or all that share a structure,
 * took from their sources and from malloc. Used and free bytes count elements with their requested
 * size. Elements in thread caches count as free. These functions visit all pages and threads, so do
 * not call them for each allocation. */
static inline size_t aral_structures_bytes_from_stats(struct aral_statistics *stats)
{
    return allot_netdata_figures(&allot_netdata_arals, stats).structures.allocated_bytes;
}

static inline size_t aral_used_bytes_from_stats(struct aral_statistics *stats)
{
    struct aral_statistics figures = allot_netdata_figures(&allot_netdata_arals, stats);
    return figures.malloc.used_bytes + figures.mmap.used_bytes;
}

static inline size_t aral_free_bytes_from_stats(struct aral_statistics *stats)
{
    struct aral_statistics figures = allot_netdata_figures(&allot_netdata_arals, stats);
    return figures.malloc.allocated_bytes + figures.mmap.allocated_bytes - figures.malloc.used_bytes
           - figures.mmap.used_bytes;
}

static inline size_t aral_padding_bytes_from_stats(struct aral_statistics *stats)
{
    struct aral_statistics figures = allot_netdata_figures(&allot_netdata_arals, stats);
    return figures.malloc.padding_bytes + figures.mmap.padding_bytes;
}

static inline size_t aral_structures_bytes(ARAL *ar)
{
    return ar == NULL ? 0 : sizeof *ar + (size_t)allot_slab_statistics(ar->slab).structure_bytes;
}

static inline size_t aral_used_bytes(ARAL *ar)
{
    return ar == NULL ? 0 : (size_t)allot_slab_statistics(ar->slab).live_bytes;
}

static inline size_t aral_free_bytes(ARAL *ar)
{
    return ar == NULL ? 0 : (size_t)allot_slab_statistics(ar->slab).free_bytes;
}

static inline size_t aral_padding_bytes(ARAL *ar)
{
    return ar == NULL ? 0 : (size_t)allot_slab_statistics(ar->slab).wasted_bytes;
}

/* Updates and returns the structure that the ARAL was created with, or its own. */
static inline struct aral_statistics *aral_get_statistics(ARAL *ar)
{
    if (ar == NULL) {
        return NULL;
    }
    (void)allot_netdata_figures(ar->living, ar->statistics);
    return ar->statistics;
}

/* The figures of all ARALs of aral_by_size_acquire(). */
static inline struct aral_statistics *aral_by_size_statistics(void)
{
    (void)allot_netdata_figures(&allot_netdata_arals, &allot_netdata_by_size);
    return &allot_netdata_by_size;
}

static inline size_t aral_by_size_structures_bytes(void)
{
    return aral_structures_bytes_from_stats(&allot_netdata_by_size);
}

static inline size_t aral_by_size_used_bytes(void)
{
    return aral_used_bytes_from_stats(&allot_netdata_by_size);
}

static inline size_t aral_by_size_free_bytes(void)
{
    return aral_free_bytes_from_stats(&allot_netdata_by_size);
}

static inline size_t aral_by_size_padding_bytes(void)
{
    return aral_padding_bytes_from_stats(&allot_netdata_by_size);
}

/* ---- life and use ---------------------------------------------------------------------------- */

/* Needs the lock. */
static inline void allot_netdata_enlist(ARAL *ar)
{
    ar->living = &allot_netdata_arals;
    ar->next = allot_netdata_arals.first;
    if (ar->next != NULL) {
        ar->next->previous = ar;
    }
    allot_netdata_arals.first = ar;
    (void)allot_netdata_sum_up(ar->living, ar->statistics);
}

/* Needs the lock of the ARAL's list. */
static inline void allot_netdata_strike(ARAL *ar)
{
    if (ar->previous != NULL) {
        ar->previous->next = ar->next;
    } else {
        ar->living->first = ar->next;
    }
    if (ar->next != NULL) {
        ar->next->previous = ar->previous;
    }
    (void)allot_netdata_sum_up(ar->living, ar->statistics);
}

static inline void allot_netdata_release_aral(ARAL *ar)
{
    if (__atomic_sub_fetch(&ar->holders, 1, __ATOMIC_ACQ_REL) == 0) {
        allot_slab_destroy(ar->slab);
        free(ar->file);
        free(ar);
    }
}

/* Needs an ARAL that is not on the list any more. */
static inline void allot_netdata_end(ARAL *ar)
{
    if (allot_netdata_thread_handle.aral == ar) {
        allot_netdata_release_handle();
    }
    uint64_t live = allot_slab_statistics(ar->slab).live_objects;
    if (live > 0) {
        fprintf(stderr,
                "allotment: ARAL '%s' destroyed with %" PRIu64 " elements in use; they stay valid until "
                "allot_slab_free_anywhere() frees them. Free all elements before aral_destroy()\n",
                ar->name, live);
    }
    if (ar->file != NULL && ar->process == getpid()) {
        (void)remove(ar->file);
    }
    /* While other threads have a handle to it, only the slots in their caches remain. */
    (void)allot_slab_trim(ar->slab);
    allot_netdata_release_aral(ar);
}

/* Creates an ARAL.
 *
 * name                   the first ARAL_MAX_NAME bytes are kept; also the slab's name in reports
 * initial_page_elements  ignored: pages begin with one hardware page and grow with use
 * max_page_size          bytes of the largest page, at most 2 MiB; 0 means
 *                        aral_optimal_malloc_page_size()
 * stats                  a structure that several ARALs may share, or NULL for its own filename,
 * cache_dir    with `mmap`: pages lie in a file of this name and a number, in the existing
 *                        directory *cache_dir; the file is removed with the ARAL. If either is
 *                        NULL or empty, pages lie in no file
 * mmap                   pages are mapped; otherwise they come from malloc lockless
 * ignored: calls on the thread's own cache never take a lock dont_dump              core dumps
 * exclude the pages, which are then mapped; core dumps exclude
 *                        pages of files in any case
 */
static inline ARAL *aral_create(const char *name, size_t element_size, size_t initial_page_elements,
                                size_t max_page_size, struct aral_statistics *stats, const char *filename,
                                const char **cache_dir, bool mmap, bool lockless, bool dont_dump)
{
    (void)initial_page_elements;
    (void)lockless;
    bool in_file = mmap && filename != NULL && filename[0] != 0 && cache_dir != NULL && *cache_dir != NULL
                   && (*cache_dir)[0] != 0;
    ARAL *ar = allot_netdata_aral(name, element_size, max_page_size, stats, in_file ? filename : NULL,
                                  in_file ? *cache_dir : NULL, mmap, dont_dump);
    pthread_mutex_lock(&allot_netdata_arals.lock);
    allot_netdata_enlist(ar);
    pthread_mutex_unlock(&allot_netdata_arals.lock);
    return ar;
}

/* Destroys an ARAL of aral_create(). NULL is ignored. Free all elements first. Elements in use stay
 * valid: a line on standard error reports their number, and only allot_slab_free_anywhere() frees
 * them. The elements in the caches of other threads are released when these threads end, or move
 * their handle to another ARAL. */
static inline void aral_destroy(ARAL *ar)
{
    if (ar == NULL) {
        return;
    }
    if (ar->users > 0) {
        allot_netdata_fail(ALLOT_IN_USE, 0, "slab", ar->name,
                           "aral_destroy() got an ARAL of aral_by_size_acquire(): use aral_by_size_release()");
    }
    struct allot_netdata_living *living = ar->living;
    pthread_mutex_lock(&living->lock);
    allot_netdata_strike(ar);
    pthread_mutex_unlock(&living->lock);
    allot_netdata_end(ar);
}

/* Returns the ARAL that the process shares for elements of this size. The first call for a size
 * creates it. */
static inline ARAL *aral_by_size_acquire(size_t size)
{
    ARAL *made = NULL;
    for (;;) {
        pthread_mutex_lock(&allot_netdata_arals.lock);
        ARAL *ar = allot_netdata_arals.first;
        while (ar != NULL && (ar->users == 0 || ar->element_size != size)) {
            ar = ar->next;
        }
        if (ar == NULL && made != NULL) {
            allot_netdata_enlist(made);
            ar = made;
            made = NULL;
        }
        if (ar != NULL) {
            ar->users += 1;
        }
        pthread_mutex_unlock(&allot_netdata_arals.lock);
        if (ar != NULL) {
            if (made != NULL) {
                allot_netdata_end(made); /* another thread listed its ARAL first */
            }
            return ar;
        }
        /* Created without the lock, because a failure handler may take it. */
        char name[ARAL_MAX_NAME + 1];
        snprintf(name, sizeof name, "size-%zu", size);
        made = allot_netdata_aral(name, size, 0, &allot_netdata_by_size, NULL, NULL, true, false);
    }
}

/* Call it once for each aral_by_size_acquire(). The last call destroys the ARAL. NULL is
 * ignored. */
static inline void aral_by_size_release(ARAL *ar)
{
    if (ar == NULL) {
        return;
    }
    struct allot_netdata_living *living = ar->living;
    pthread_mutex_lock(&living->lock);
    size_t users = ar->users;
    if (users > 0) {
        ar->users -= 1;
    }
    if (users == 1) {
        allot_netdata_strike(ar);
    }
    pthread_mutex_unlock(&living->lock);
    if (users == 0) {
        allot_netdata_fail(ALLOT_IN_USE, 0, "slab", ar->name,
                           "aral_by_size_release() got an ARAL of aral_create(): use aral_destroy()");
    }
    if (users == 1) {
        allot_netdata_end(ar);
    }
}

static inline const char *aral_name(ARAL *ar)
{
    return ar->name;
}

/* The size in bytes that aral_create() got. */
static inline size_t aral_requested_element_size(ARAL *ar)
{
    return ar->element_size;
}

/* The distance from one element to the next, in bytes. */
static inline size_t aral_actual_element_size(ARAL *ar)
{
    size_t align = allot_netdata_align(ar->element_size);
    return ar->element_size == 0 ? align : (ar->element_size + align - 1) & ~(align - 1);
}

/* A separate function, so that the compiler keeps the fast path in one piece. */
__attribute__((cold, noinline, unused)) static void *allot_netdata_alloc_elsewhere(ARAL *ar)
{
    if (ar == NULL || !allot_netdata_try_move_handle(ar, ar->slab, &ar->holders)) {
        return allot_slab_alloc(allot_netdata_slab(ar));
    }
    return allot_slab_handle_alloc(allot_netdata_thread_handle.handle);
}

/* An uninitialised element. Inline, like aral_freez(), for the ARAL to which the thread has its
 * handle; a call for others. */
static inline void *aral_mallocz(ARAL *ar)
{
    if (ALLOT_UNLIKELY(allot_netdata_thread_handle.aral != ar)) {
        return allot_netdata_alloc_elsewhere(ar);
    }
    return allot_slab_handle_alloc(allot_netdata_thread_handle.handle);
}

/* An element that will live long. Such elements lie on separate pages, so that they do not keep the
 * others' pages. */
static inline void *aral_mallocz_marked(ARAL *ar)
{
    return allot_slab_alloc_for(allot_netdata_slab(ar), ALLOT_LONG_LIVED);
}

/* A zeroed element. */
static inline void *aral_callocz(ARAL *ar)
{
    void *element = aral_mallocz(ar);
    return memset(element, 0, ar->element_size);
}

static inline void *aral_callocz_marked(ARAL *ar)
{
    void *element = aral_mallocz_marked(ar);
    return memset(element, 0, ar->element_size);
}

/* Does nothing: the page of a marked element was chosen when it was allocated. */
static inline void aral_unmark_allocation(ARAL *ar, void *ptr)
{
    (void)ar;
    (void)ptr;
}

/* Frees an element, on any thread. NULL is ignored. An element of another slab is named on standard
 * error, and the process is aborted. */
static inline void aral_freez(ARAL *ar, void *ptr)
{
    if (ALLOT_UNLIKELY(allot_netdata_thread_handle.aral != ar)) {
        allot_slab_free(allot_netdata_slab(ar), ptr);
    } else {
        allot_slab_handle_free(allot_netdata_thread_handle.handle, ptr);
    }
}

#ifdef __cplusplus
}
#endif

#endif
