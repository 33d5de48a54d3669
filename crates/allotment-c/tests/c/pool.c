/* Pools: entering and leaving; blocks by size, through the pool and through references; blocks that outlive
 * their pool; errors. */
#include <allotment.h>

#include <pthread.h>

#include "stamped.h"
#include "watched.h"

#define MOST 600

static uint64_t state = 4101842887655102017u;

static bool passes_through(void)
{
    return getenv("ALLOTMENT_PASSTHROUGH") != NULL;
}

static size_t some_size(void)
{
    static const size_t limits[] = {1, 17, 300, 5000, 100000};
    return (size_t)draw(&state, limits[draw(&state, 5)]);
}

static void the_current_pool_is_the_one_entered_last(void)
{
    allot_pool *outer = allot_pool_create(&(allot_options){.name = "outer"});
    allot_pool *inner = allot_pool_create(NULL);
    allot_pool_ref first = allot_pool_reference(outer), second = allot_pool_reference(inner);
    EXPECT(passes_through() || (first != second && first != allot_global()));
    EXPECT(allot_current() == allot_global());
    allot_entered one = allot_pool_enter(outer);
    EXPECT(allot_current() == first);
    allot_entered two = allot_pool_enter(inner);
    EXPECT(allot_current() == second);
    allot_entered three = allot_pool_enter(outer);
    EXPECT(allot_current() == first);
    allot_pool_leave(three);
    EXPECT(allot_current() == second);
    allot_entered four = allot_pool_enter(inner);
    allot_pool_leave(four);
    EXPECT(allot_current() == second);
    allot_pool_leave(two);
    EXPECT(allot_current() == first);
    allot_pool_leave(one);
    EXPECT(allot_current() == allot_global());
    allot_pool_destroy(inner);
    EXPECT(passes_through() || (allot_ref_is_usable(first) && !allot_ref_is_usable(second)));
    EXPECT(!allot_ref_is_usable(allot_global()));
    allot_pool_destroy(outer);
    allot_pool_destroy(NULL);
}

static void blocks_come_and_go(const allot_options *options)
{
    static struct stamped live[MOST];
    size_t count = 0;
    allot_pool *pool = allot_pool_create(options);
    allot_pool_ref ref = allot_pool_reference(pool);
    for (int turn = 0; turn < 20 * MOST; turn++) {
        size_t size = some_size();
        size_t which = count > 0 ? (size_t)draw(&state, count) : 0;
        struct stamped *old = &live[which];
        unsigned choice = (unsigned)draw(&state, 5);
        if (count < MOST && (count == 0 || choice < 2)) {
            size_t align = (size_t)1 << draw(&state, 9);
            void *block;
            switch (draw(&state, 4)) {
            case 0: block = allot_pool_alloc(pool, size, align); break;
            case 1: block = allot_pool_try_alloc(pool, size, align); break;
            case 2: block = allot_ref_alloc(ref, size, align); break;
            default: block = allot_ref_try_alloc(ref, size, align);
            }
            EXPECT(passes_through() || allot_pool_any_holds(block));
            live[count++] = stamp(block, size, align, &state);
        } else if (choice == 3) {
            size_t kept = size < old->size ? size : old->size;
            void *block;
            switch (draw(&state, 4)) {
            case 0: block = allot_pool_resize(pool, old->start, old->size, size, old->align); break;
            case 1: block = allot_pool_try_resize(pool, old->start, old->size, size, old->align); break;
            case 2: block = allot_ref_resize(ref, old->start, old->size, size, old->align); break;
            default: block = allot_ref_try_resize(allot_global(), old->start, old->size, size, old->align);
            }
            old->start = (unsigned char *)block;
            EXPECT(block != NULL);
            expect_first(old, kept);
            *old = stamp(block, size, old->align, &state);
        } else {
            expect_whole(old);
            if (draw(&state, 2))
                allot_pool_free_sized(pool, old->start, old->size, old->align);
            else
                allot_free_sized(old->start, old->size, old->align);
            live[which] = live[--count];
        }
    }
    EXPECT(passes_through() || allot_pool_statistics(pool).live_objects == count);
    allot_pool_trim(pool);
    for (size_t i = 0; i < count; i++)
        expect_whole(&live[i]);
    /* What lives on is good after the pool's end, and is resized then, too. */
    allot_pool_destroy(pool);
    for (size_t i = 0; i < count; i++) {
        expect_whole(&live[i]);
        live[i].start = (unsigned char *)allot_ref_resize(ref, live[i].start, live[i].size, live[i].size + 1, live[i].align);
        expect_whole(&live[i]);
        allot_free_sized(live[i].start, live[i].size + 1, live[i].align);
    }
}

static void *write_and_free(void *argument)
{
    void **blocks = (void **)argument;
    for (int i = 0; i < 100; i++) {
        memset(blocks[i], 1, 40);
        allot_free_sized(blocks[i], 40, 8);
    }
    return NULL;
}

static void blocks_are_freed_by_other_threads(void)
{
    pthread_t thread;
    void *blocks[100];
    allot_pool *pool = allot_pool_create(NULL);
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 100; i++)
            blocks[i] = allot_pool_alloc(pool, 40, 8);
        EXPECT(pthread_create(&thread, NULL, write_and_free, blocks) == 0 && pthread_join(thread, NULL) == 0);
        EXPECT(allot_pool_statistics(pool).live_objects == 0);
    }
    allot_pool_destroy(pool);
}

static void the_global_heap_is_mallocs(void)
{
    void *block = allot_ref_alloc(allot_global(), 100, 64);
    EXPECT(block != NULL && (uintptr_t)block % 64 == 0 && !allot_pool_any_holds(block));
    memset(block, 5, 100);
    block = allot_ref_resize(allot_global(), block, 100, 5000, 64);
    EXPECT((uintptr_t)block % 64 == 0 && ((unsigned char *)block)[99] == 5);
    allot_free_sized(block, 5000, 64);
    allot_free_sized(NULL, 10, 8);
}

static void what_can_not_be_had_is_refused_with_a_reason(void)
{
    allot_pool *pool = allot_pool_create(&(allot_options){.name = "bounded", .maximum = 1 << 20});
    allot_pool_ref ref = allot_pool_reference(pool);
    EXPECT(passes_through() || allot_pool_try_alloc(pool, 2 << 20, 8) == NULL);
    EXPECT(passes_through() || allot_last_error()->kind == ALLOT_BUDGET_EXCEEDED);
    EXPECT(passes_through() || strcmp(allot_last_error()->name, "bounded") == 0);
    EXPECT(passes_through() || allot_ref_try_alloc(ref, 2 << 20, 8) == NULL);
    EXPECT(passes_through() || allot_pool_try_malloc(pool, 2 << 20) == NULL);
    void *block = allot_pool_alloc(pool, 100, 8);
    EXPECT(passes_through() || allot_pool_try_resize(pool, block, 100, 2 << 20, 8) == NULL);
    EXPECT(allot_pool_try_resize(pool, block, 100, SIZE_MAX, 8) == NULL && allot_last_error()->kind == ALLOT_SIZE_OVERFLOW);
    allot_pool_free_sized(pool, block, 100, 8);
    EXPECT(allot_pool_try_alloc(pool, 8, 12) == NULL && allot_last_error()->kind == ALLOT_BAD_ALIGNMENT);
    EXPECT(allot_ref_try_alloc(ref, SIZE_MAX, 8) == NULL && allot_last_error()->kind == ALLOT_SIZE_OVERFLOW);
    EXPECT(allot_ref_try_malloc(ref, SIZE_MAX) == NULL && allot_last_error()->kind == ALLOT_SIZE_OVERFLOW);
    allot_pool_free_sized(pool, NULL, 100, 8);
    allot_pool_destroy(pool);
    EXPECT(allot_pool_try_alloc(NULL, 8, 8) == NULL && allot_last_error()->kind == ALLOT_BAD_HANDLE);
    EXPECT(allot_pool_try_malloc(NULL, 8) == NULL && allot_pool_try_resize(NULL, NULL, 0, 8, 8) == NULL);
    EXPECT(allot_pool_try_create(&(allot_options){.hint = 3}) == NULL && allot_last_error()->kind == ALLOT_BAD_OPTION);
    EXPECT(allot_pool_try_create_abi(99, NULL) == NULL && allot_last_error()->kind == ALLOT_WRONG_ABI);
}

int main(void)
{
    the_current_pool_is_the_one_entered_last();
    blocks_come_and_go(NULL);
    blocks_come_and_go(&(allot_options){.name = "hardened", .hardened = true});
    blocks_come_and_go(&(allot_options){.reserved = 1 << 20, .release = {ALLOT_AT_ONCE, 0}, .increment = 1 << 17});
    allot_budget *budget = allot_budget_create(1 << 30);
    blocks_come_and_go(&(allot_options){.budget = budget, .maximum = 1 << 29, .release = {ALLOT_DECAY, 1}});
    EXPECT(allot_budget_used(budget) == 0);
    allot_budget_destroy(budget);
    blocks_are_freed_by_other_threads();
    the_global_heap_is_mallocs();
    what_can_not_be_had_is_refused_with_a_reason();
    return 0;
}
