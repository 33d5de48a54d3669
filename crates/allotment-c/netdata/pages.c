/* Sources for the pages of an ARAL, other than malloc and ordinary mappings. */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

/* Pages that are excluded from core dumps. */
static void *map_undumped(void *context, size_t size, size_t align)
{
    (void)context;
    /* Large enough to contain an aligned block; the parts before and after it are unmapped. */
    size_t whole;
    if (__builtin_add_overflow(size, align, &whole)) {
        return NULL;
    }
    void *mapping = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
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
    (void)madvise(block, size, MADV_DONTDUMP);
    return block;
}

static void unmap(void *context, void *block, size_t size, size_t align)
{
    (void)context;
    (void)align;
    (void)munmap(block, size);
}

allot_source *netdata_undumped_source(void)
{
    allot_source_calls calls;
    memset(&calls, 0, sizeof calls);
    calls.name = "mmap, not dumped";
    calls.acquire = map_undumped;
    calls.release = unmap;
    calls.zeroed = true;
    return allot_source_create(&calls, NULL);
}

/* Removes a file that a crashed process left behind. */
allot_source *netdata_file_source(const char *directory, const char *filename, char **path)
{
    static size_t files;
    size_t room = strlen(directory) + strlen(filename) + 24;
    *path = (char *)malloc(room);
    if (*path == NULL) {
        netdata_fail(ALLOT_SYSTEM, room, "source", "", "malloc has no memory for the name of an ARAL's file");
    }
    size_t number = __atomic_fetch_add(&files, 1, __ATOMIC_RELAXED);
    snprintf(*path, room, "%s/%s.%zu", directory, filename, number);
    (void)remove(*path);
    return allot_source_file(*path);
}
