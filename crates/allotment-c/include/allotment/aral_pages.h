/* Sources for the pages of an ARAL, other than malloc and ordinary mappings. Internal: programs
 * must not use it.
 */
#ifndef ALLOTMENT_ARAL_PAGES_H
#define ALLOTMENT_ARAL_PAGES_H

#include "ancestors.h"

#include <sys/mman.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Strict C11 mode hides declarations that POSIX does not have. */
#ifdef MADV_DONTDUMP
#define ALLOT_NETDATA_DONTDUMP MADV_DONTDUMP
#define ALLOT_NETDATA_ANONYMOUS MAP_ANONYMOUS
#else
#define ALLOT_NETDATA_DONTDUMP 16
#define ALLOT_NETDATA_ANONYMOUS 0x20
int madvise(void *address, size_t size, int advice);
#endif

/* Pages that are excluded from core dumps. */
static inline void *allot_netdata_map_undumped(void *context, size_t size, size_t align)
{
    (void)context;
    /* Large enough to contain an aligned block; the parts before and after it are unmapped. */
    size_t whole;
    if (__builtin_add_overflow(size, align, &whole)) {
        return NULL;
    }
    void *mapping = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | ALLOT_NETDATA_ANONYMOUS, -1, 0);
    if (mapping == MAP_FAILED) {
        return NULL;
    }
    size_t before = (size_t)(0 - (uintptr_t)mapping) & (align - 1);
    char *block = (char *)mapping + before;
    if (before > 0) {
        (void)munmap(mapping, before);
    }
    (void)munmap(block + size, whole - before - size);
    /* If the kernel cannot exclude the pages, it dumps them. That is no reason to fail. */
    (void)madvise(block, size, ALLOT_NETDATA_DONTDUMP);
    return block;
}

static inline void allot_netdata_unmap(void *context, void *block, size_t size, size_t align)
{
    (void)context;
    (void)align;
    (void)munmap(block, size);
}

static inline allot_source *allot_netdata_undumped(void)
{
    allot_source_calls calls;
    memset(&calls, 0, sizeof calls);
    calls.name = "mmap, not dumped";
    calls.acquire = allot_netdata_map_undumped;
    calls.release = allot_netdata_unmap;
    calls.zeroed = true;
    return allot_source_create(&calls, NULL);
}

ALLOT_NETDATA_SHARED size_t allot_netdata_files;

/* Creates a file with this name and a number, and removes one that a crashed process left behind.
 * `*path` is allocated by malloc. */
static inline allot_source *allot_netdata_file(const char *directory, const char *filename, char **path)
{
    size_t room = strlen(directory) + strlen(filename) + 24;
    *path = (char *)malloc(room);
    if (*path == NULL) {
        allot_netdata_fail(ALLOT_SYSTEM, room, "source", "", "malloc has no memory for the name of an ARAL's file");
    }
    size_t number = __atomic_fetch_add(&allot_netdata_files, 1, __ATOMIC_RELAXED);
    snprintf(*path, room, "%s/%s.%zu", directory, filename, number);
    (void)remove(*path);
    return allot_source_file(*path);
}

#ifdef __cplusplus
}
#endif

#endif
