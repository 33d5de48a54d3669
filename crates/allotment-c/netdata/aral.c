/* The life of an ARAL, and its elements: aral.h says what each function does. */
#include "internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* The bytes of the largest page if none are requested; 0 means the default. */
static size_t optimal_page_size;

static size_t clamped_page_size(size_t size)
{
    return size < HARDWARE_PAGE ? HARDWARE_PAGE : size > LARGEST_PAGE ? LARGEST_PAGE : size;
}

ANCESTOR size_t aral_optimal_malloc_page_size(void)
{
    size_t size = __atomic_load_n(&optimal_page_size, __ATOMIC_RELAXED);
    return size == 0 ? DEFAULT_PAGE : size;
}

ANCESTOR void aral_optimal_malloc_page_size_set(size_t size)
{
    __atomic_store_n(&optimal_page_size, size == 0 ? 0 : clamped_page_size(size), __ATOMIC_RELAXED);
}

ARAL *netdata_create_aral(const char *name, size_t element_size, size_t max_page_size,
                          struct aral_statistics *stats, const char *file, const char *directory, bool mapped,
                          bool dont_dump)
{
    netdata_watch_forks();
    ARAL *ar = (ARAL *)calloc(1, sizeof *ar);
    if (ar == NULL) {
        netdata_fail(ALLOT_SYSTEM, sizeof *ar, "slab", "", "malloc has no memory for an ARAL's structure");
    }
    snprintf(ar->name, sizeof ar->name, "%s", name == NULL ? "" : name);
    ar->element_size = element_size;
    ar->statistics = stats == NULL ? &ar->own : stats;
    ar->mapped = mapped;
    ar->holders = 1;

    allot_source *source;
    if (dont_dump && file == NULL) {
        source = netdata_undumped_source();
    } else if (!mapped) {
        source = allot_source_malloc();
    } else if (file != NULL) {
        source = netdata_file_source(directory, file, &ar->file);
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
    options.max_page_bytes = max_page_size == 0 ? aral_optimal_malloc_page_size() : clamped_page_size(max_page_size);
    ar->slab = allot_slab_create(element_size, ALLOT_NETDATA_ALIGN(element_size), &options);
    allot_source_destroy(source); /* the slab keeps it */
    (void)netdata_add_to_statistics(ar, 0);
    return ar;
}

void netdata_release_aral(ARAL *ar)
{
    /* Release: what this thread did comes before the end; acquire: and what the others did. */
    if (__atomic_sub_fetch(&ar->holders, 1, __ATOMIC_ACQ_REL) == 0) {
        allot_slab_destroy(ar->slab);
        free(ar->file);
        free(ar);
    }
}

void netdata_end_aral(ARAL *ar)
{
    netdata_forget_aral(ar);
    netdata_leave_statistics(ar);
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
    netdata_release_aral(ar);
}

ANCESTOR ARAL *aral_create(const char *name, size_t element_size, size_t initial_page_elements,
                           size_t max_page_size, struct aral_statistics *stats, const char *filename,
                           const char **cache_dir, bool mmap, bool lockless, bool dont_dump)
{
    (void)initial_page_elements;
    (void)lockless;
    bool in_file = mmap && filename != NULL && filename[0] != 0 && cache_dir != NULL && *cache_dir != NULL
                   && (*cache_dir)[0] != 0;
    return netdata_create_aral(name, element_size, max_page_size, stats, in_file ? filename : NULL,
                               in_file ? *cache_dir : NULL, mmap, dont_dump);
}

ANCESTOR void aral_destroy(ARAL *ar)
{
    if (ar == NULL) {
        return;
    }
    if (ar->users > 0) {
        netdata_fail(ALLOT_IN_USE, 0, "slab", ar->name,
                     "aral_destroy() got an ARAL of aral_by_size_acquire(): use aral_by_size_release()");
    }
    netdata_end_aral(ar);
}

ANCESTOR const char *aral_name(ARAL *ar)
{
    return ar->name;
}

ANCESTOR size_t aral_requested_element_size(ARAL *ar)
{
    return ar->element_size;
}

ANCESTOR size_t aral_actual_element_size(ARAL *ar)
{
    size_t align = ALLOT_NETDATA_ALIGN(ar->element_size);
    return ar->element_size == 0 ? align : (ar->element_size + align - 1) & ~(align - 1);
}

EXPORTED allot_slab *allot_netdata_slab(ARAL *ar)
{
    return ar == NULL ? NULL : ar->slab;
}

EXPORTED void *allot_netdata_alloc_slowly(ARAL *ar)
{
    struct allot_netdata_thread *mine = &allot_netdata_thread;
    if (ar == NULL || (mine->aral != ar && !netdata_try_move_handle(ar))) {
        void *element = allot_slab_alloc(allot_netdata_slab(ar));
        netdata_count_elements(ar, 1);
        return element;
    }
    void *element = allot_slab_handle_alloc(mine->handle);
    mine->balance += 1;
    /* The cache was empty: there may be another page. */
    return allot_netdata_add_balance(element);
}

EXPORTED void allot_netdata_free_slowly(ARAL *ar, void *ptr)
{
    if (ptr == NULL) {
        return;
    }
    struct allot_netdata_thread *mine = &allot_netdata_thread;
    if (mine->aral != ar) {
        allot_slab_free(allot_netdata_slab(ar), ptr);
        netdata_count_elements(ar, -1);
        return;
    }
    allot_slab_handle_free(mine->handle, ptr);
    mine->balance -= 1;
    /* The cache was full, or the element's page is sparse: there may be a page less. */
    (void)allot_netdata_add_balance(NULL);
}

ANCESTOR void *aral_mallocz_marked(ARAL *ar)
{
    void *element = allot_slab_alloc_for(allot_netdata_slab(ar), ALLOT_LONG_LIVED);
    netdata_count_elements(ar, 1);
    return element;
}

ANCESTOR void *aral_callocz(ARAL *ar)
{
    void *element = aral_mallocz(ar);
    return memset(element, 0, ar->element_size);
}

ANCESTOR void *aral_callocz_marked(ARAL *ar)
{
    void *element = aral_mallocz_marked(ar);
    return memset(element, 0, ar->element_size);
}

ANCESTOR void aral_unmark_allocation(ARAL *ar, void *ptr)
{
    (void)ar;
    (void)ptr;
}
