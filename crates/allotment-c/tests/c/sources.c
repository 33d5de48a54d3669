/* Sources: each kind works with every allocator that takes one; a custom source is called as the header says,
 * whichever call fails. */
#include <allotment.h>

#include <fcntl.h>
#include <stdint.h>
#include <unistd.h>

#include "expect.h"

/* A source that counts, and refuses the call that it is told to. */
struct counting {
    size_t acquired, released, bytes, calls, refused;
    int ended;
    bool misaligned;
};

static void *acquire(void *context, size_t size, size_t align)
{
    struct counting *counting = context;
    if (++counting->calls == counting->refused)
        return NULL;
    EXPECT(size > 0 && (align & (align - 1)) == 0);
    size_t extra = counting->misaligned ? align : 0;
    char *block = aligned_alloc(align, (size + extra + align - 1) / align * align);
    if (block == NULL)
        return NULL;
    counting->acquired++;
    counting->bytes += size;
    return counting->misaligned ? block + 1 : block;
}

static void release(void *context, void *block, size_t size, size_t align)
{
    struct counting *counting = context;
    if (counting->misaligned)
        block = (char *)block - 1;
    EXPECT((uintptr_t)block % align == 0);
    counting->released++;
    counting->bytes -= size;
    free(block);
}

static void end(void *context)
{
    ((struct counting *)context)->ended++;
}

static const allot_source_calls calls = {.name = "counting", .acquire = acquire, .release = release, .end = end};

/* Uses an arena and a free list on a source, by try_ calls; false if one of them failed. */
static bool work_on(allot_source *source)
{
    bool whole = true;
    const allot_options options = {.source = source, .name = "worker"};
    allot_arena *arena = allot_arena_try_create(&options);
    EXPECT(arena != NULL);
    for (int i = 1; i <= 60 && whole; i++) {
        allot_statistics before = allot_arena_statistics(arena);
        char *object = allot_arena_try_alloc(arena, (size_t)i * 100);
        if (object == NULL) {
            allot_statistics after = allot_arena_statistics(arena);
            EXPECT(after.live_objects == before.live_objects && after.held_bytes == before.held_bytes);
            EXPECT(allot_last_error()->kind == ALLOT_SOURCE_REFUSED);
            EXPECT(strcmp(allot_last_error()->name, "worker") == 0);
            whole = false;
        } else
            memset(object, i, (size_t)i * 100);
    }
    allot_arena_destroy(arena);
    allot_free_list *list = allot_free_list_try_create(200, 8, &options);
    EXPECT(list != NULL);
    for (int i = 0; i < 200; i++) {
        size_t before = allot_free_list_live(list);
        char *object = allot_free_list_try_alloc(list);
        if (object == NULL) {
            EXPECT(allot_free_list_live(list) == before && allot_last_error()->kind == ALLOT_SOURCE_REFUSED);
            whole = false;
        } else
            memset(object, i, 200);
    }
    allot_free_list_destroy(list);
    return whole;
}

static void whichever_call_is_refused_nothing_is_lost(void)
{
    size_t failed = 0;
    for (size_t refused = 1;; refused++) {
        struct counting counting = {.refused = refused};
        allot_source *source = allot_source_create(&calls, &counting);
        bool whole = work_on(source);
        EXPECT(counting.acquired == counting.released && counting.bytes == 0);
        EXPECT(counting.ended == 0);
        allot_source_destroy(source);
        EXPECT(counting.ended == 1);
        if (counting.calls < refused) {
            /* Every call has been refused once. */
            EXPECT(whole && failed > 1);
            return;
        }
        /* Where a larger chunk is refused, a smaller one may do. */
        failed += !whole;
        allot_clear_error();
    }
}

static void a_source_lasts_as_long_as_its_allocators(void)
{
    struct counting counting = {.refused = 0};
    allot_source *source = allot_source_create(&calls, &counting);
    allot_arena *arena = allot_arena_create(&(allot_options){.source = source});
    allot_source_destroy(source);
    memset(allot_arena_alloc(arena, 100000), 1, 100000);
    EXPECT(counting.ended == 0 && counting.acquired > 0);
    allot_arena_destroy(arena);
    EXPECT(counting.ended == 1 && counting.bytes == 0);
}

static void a_block_that_is_not_aligned_is_given_back_and_refused(void)
{
    struct counting counting = {.misaligned = true};
    allot_source *source = allot_source_try_create(&calls, &counting);
    allot_arena *arena = allot_arena_create(&(allot_options){.source = source});
    EXPECT(allot_arena_try_alloc(arena, 100) == NULL && allot_last_error()->kind == ALLOT_SOURCE_REFUSED);
    EXPECT(counting.acquired == 1 && counting.released == 1);
    allot_arena_destroy(arena);
    allot_source_destroy(source);
}

static void zeros_of_a_source_need_not_be_written(void)
{
    allot_source *source = allot_source_malloc();
    allot_arena *arena = allot_arena_create(&(allot_options){.source = source});
    for (int round = 0; round < 3; round++) {
        unsigned char *zeros = allot_arena_calloc(arena, 50000, 1);
        for (int i = 0; i < 50000; i++)
            EXPECT(zeros[i] == 0);
        memset(zeros, 0xEE, 50000);
        allot_arena_reset(arena);
    }
    allot_arena_destroy(arena);
    allot_source_destroy(source);
}

static void a_file_has_the_bytes(void)
{
    char directory[] = "allotment-test-XXXXXX", path[64];
    EXPECT(mkdtemp(directory) != NULL);
    snprintf(path, sizeof(path), "%s/objects", directory);
    allot_source *source = allot_source_try_file(path);
    EXPECT(source != NULL);
    EXPECT(allot_source_try_file(path) == NULL && allot_last_error()->kind == ALLOT_SYSTEM);
    allot_arena *arena = allot_arena_create(&(allot_options){.source = source});
    char *text = allot_arena_strdup(arena, "read by another one");
    uint64_t offset = UINT64_MAX;
    EXPECT(allot_source_file_offset(source, text, &offset) && allot_source_file_offset(source, text, NULL));
    char found[20];
    int file = open(path, O_RDONLY);
    EXPECT(file >= 0 && pread(file, found, sizeof(found), (off_t)offset) == (ssize_t)sizeof(found));
    EXPECT(strcmp(found, "read by another one") == 0);
    close(file);
    EXPECT(!allot_source_file_offset(source, path, &offset));
    EXPECT(work_on(source));
    allot_source_destroy(source);
    allot_arena_destroy(arena);
    EXPECT(unlink(path) == 0);

    source = allot_source_file_in(directory);
    EXPECT(work_on(source));
    /* Without a name: the directory is empty. */
    EXPECT(rmdir(directory) == 0);
    allot_source_destroy(source);
    EXPECT(allot_source_try_file_in(directory) == NULL);
    EXPECT(allot_last_error()->kind == ALLOT_SYSTEM && strstr(allot_last_error()->message, directory) != NULL);
}

static void every_kind_serves(void)
{
    allot_source *sources[] = {allot_source_mmap(), allot_source_small_pages(), allot_source_huge_pages(),
                               allot_source_malloc()};
    uint64_t offset;
    for (int i = 0; i < 4; i++) {
        EXPECT(work_on(sources[i]));
        EXPECT(!allot_source_file_offset(sources[i], sources, &offset));
        allot_source_destroy(sources[i]);
    }
}

int main(void)
{
    whichever_call_is_refused_nothing_is_lost();
    a_source_lasts_as_long_as_its_allocators();
    a_block_that_is_not_aligned_is_given_back_and_refused();
    zeros_of_a_source_need_not_be_written();
    a_file_has_the_bytes();
    every_kind_serves();
    return 0;
}
