/* Blocks that store their size: from the current pool, a named pool and malloc, freed and resized by address
 * alone. */
#include <allotment.h>

#include <pthread.h>

#include "stamped.h"
#include "watched.h"

#define MOST 600

static uint64_t state = 2463534242u;

static size_t some_size(void)
{
    static const size_t limits[] = {1, 17, 300, 1100, 40000};
    return (size_t)draw(&state, limits[draw(&state, 5)]);
}

static void *some_block(allot_pool *pool, size_t size, size_t align)
{
    if (align > 16)
        return draw(&state, 2) ? allot_aligned_alloc(align, size) : allot_try_aligned_alloc(align, size);
    allot_pool_ref ref = pool == NULL ? allot_global() : allot_pool_reference(pool);
    switch (draw(&state, 8)) {
    case 0: return allot_malloc(size);
    case 1: return allot_try_malloc(size);
    case 2: return allot_ref_malloc(ref, size);
    case 3: return allot_ref_try_malloc(allot_current(), size);
    case 4: return allot_realloc(NULL, size);
    case 5: return pool == NULL ? allot_try_realloc(NULL, size) : allot_pool_malloc(pool, size);
    case 6: return pool == NULL ? allot_aligned_alloc(1, size) : allot_pool_try_malloc(pool, size);
    default: {
        size_t count = 1 + (size_t)draw(&state, 5);
        unsigned char *zeros = (unsigned char *)allot_calloc(count, size / count + 1);
        for (size_t i = 0; i < size; i++)
            EXPECT(zeros[i] == 0);
        return zeros;
    }
    }
}

static void blocks_come_and_go(allot_pool *pool)
{
    static struct stamped live[MOST];
    size_t count = 0;
    for (int turn = 0; turn < 20 * MOST; turn++) {
        size_t size = some_size();
        size_t which = count > 0 ? (size_t)draw(&state, count) : 0;
        struct stamped *old = &live[which];
        unsigned choice = (unsigned)draw(&state, 5);
        if (count < MOST && (count == 0 || choice < 2)) {
            size_t align = draw(&state, 3) ? 16 : (size_t)32 << draw(&state, 8);
            void *block = some_block(pool, size, align);
            live[count++] = stamp(block, size, align, &state);
            EXPECT(allot_usable_size(block) >= size);
        } else if (choice == 3) {
            size_t kept = size < old->size ? size : old->size;
            old->start = (unsigned char *)(draw(&state, 2) ? allot_realloc(old->start, size) : allot_try_realloc(old->start, size));
            EXPECT(old->start != NULL && allot_usable_size(old->start) >= size);
            expect_first(old, kept);
            *old = stamp(old->start, size, old->align, &state);
        } else {
            expect_whole(old);
            allot_free(old->start);
            live[which] = live[--count];
        }
    }
    while (count > 0) {
        expect_whole(&live[--count]);
        allot_free(live[count].start);
    }
}

static void *grow_and_free(void *argument)
{
    void **block = (void **)argument;
    *block = allot_realloc(*block, 5000);
    EXPECT(((unsigned char *)*block)[99] == 9);
    allot_free(*block);
    return NULL;
}

static void a_block_grows_and_goes_on_another_thread_and_after_its_pool(void)
{
    pthread_t thread;
    allot_pool *pool = allot_pool_create(NULL);
    allot_entered entered = allot_pool_enter(pool);
    void *sent = memset(allot_malloc(100), 9, 100);
    void *kept = memset(allot_malloc(100), 9, 100);
    EXPECT(pthread_create(&thread, NULL, grow_and_free, &sent) == 0 && pthread_join(thread, NULL) == 0);
    allot_pool_leave(entered);
    EXPECT(allot_pool_statistics(pool).live_objects <= 1);
    allot_pool_destroy(pool);
    kept = allot_realloc(kept, 200);
    EXPECT(((unsigned char *)kept)[99] == 9 && allot_usable_size(kept) == 200);
    allot_free(kept);
}

static void what_can_not_be_had_is_refused_and_leaves_things_as_they_were(void)
{
    EXPECT(allot_try_malloc(SIZE_MAX) == NULL && allot_last_error()->kind == ALLOT_SIZE_OVERFLOW);
    EXPECT(allot_try_malloc(SIZE_MAX - 16) == NULL && allot_last_error()->kind == ALLOT_SIZE_OVERFLOW);
    EXPECT(strcmp(allot_last_error()->allocator, "memory") == 0);
    EXPECT(allot_try_calloc(SIZE_MAX / 2, 3) == NULL && allot_last_error()->kind == ALLOT_SIZE_OVERFLOW);
    EXPECT(allot_last_error()->requested == SIZE_MAX);
    EXPECT(allot_try_aligned_alloc(3, 8) == NULL && allot_last_error()->kind == ALLOT_BAD_ALIGNMENT);
    EXPECT(allot_try_aligned_alloc(0, 8) == NULL && allot_last_error()->kind == ALLOT_BAD_ALIGNMENT);
    EXPECT(allot_try_aligned_alloc((size_t)1 << 63, 8) == NULL && allot_last_error()->kind == ALLOT_SIZE_OVERFLOW);
    EXPECT(allot_try_aligned_alloc((size_t)1 << 62, 1) == NULL && allot_last_error()->kind == ALLOT_SIZE_OVERFLOW);
    /* Both together are more than 2^64. */
    EXPECT(allot_try_aligned_alloc((size_t)1 << 63, (size_t)1 << 63) == NULL);
    EXPECT(allot_last_error()->kind == ALLOT_SIZE_OVERFLOW && allot_last_error()->requested == (size_t)1 << 63);
    unsigned char *block = (unsigned char *)memset(allot_malloc(50), 3, 50);
    EXPECT(allot_try_realloc(block, SIZE_MAX / 2) == NULL && allot_last_error()->kind == ALLOT_SIZE_OVERFLOW);
    EXPECT(block[0] == 3 && block[49] == 3 && allot_usable_size(block) == 50);
    allot_free(block);
    allot_free(NULL);
    EXPECT(allot_usable_size(NULL) == 0);

    /* What a budget refuses stays refused. */
    allot_pool *pool = allot_pool_create(&(allot_options){.maximum = 1 << 20});
    allot_entered entered = allot_pool_enter(pool);
    block = (unsigned char *)memset(allot_calloc(50, 1), 3, 50);
    if (getenv("ALLOTMENT_PASSTHROUGH") == NULL) {
        EXPECT(allot_try_malloc(2 << 20) == NULL && allot_last_error()->kind == ALLOT_BUDGET_EXCEEDED);
        EXPECT(strcmp(allot_last_error()->allocator, "pool") == 0);
        EXPECT(allot_try_realloc(block, 2 << 20) == NULL && allot_last_error()->kind == ALLOT_BUDGET_EXCEEDED);
    }
    EXPECT(block[0] == 3 && block[49] == 3);
    allot_free(block);
    allot_pool_leave(entered);
    allot_pool_destroy(pool);
}

int main(void)
{
    blocks_come_and_go(NULL);
    const allot_options options[] = {{.name = NULL}, {.hardened = true}, {.release = {ALLOT_AT_ONCE, 0}}};
    for (int i = 0; i < 3; i++) {
        allot_pool *pool = allot_pool_create(&options[i]);
        allot_entered entered = allot_pool_enter(pool);
        blocks_come_and_go(pool);
        allot_pool_leave(entered);
        EXPECT(allot_pool_statistics(pool).live_objects == 0);
        blocks_come_and_go(pool);
        allot_pool_destroy(pool);
    }
    a_block_grows_and_goes_on_another_thread_and_after_its_pool();
    what_can_not_be_had_is_refused_and_leaves_things_as_they_were();
    return 0;
}
