/* Reaps: blocks of any layout never overlap, with and without a stored size; resizing keeps the contents;
 * resets; errors. */
#include <allotment.h>

#include <pthread.h>

#include "stamped.h"
#include "watched.h"

#define MOST 600

static uint64_t state = 521288629546311u;

static size_t some_size(void)
{
    static const size_t limits[] = {1, 17, 300, 5000, 100000};
    return (size_t)draw(&state, limits[draw(&state, 5)]);
}

static void blocks_come_and_go(const allot_options *options)
{
    static struct stamped live[MOST];
    size_t count = 0;
    allot_reap *reap = allot_reap_create(options);
    for (int round = 0; round < 3; round++) {
        for (int turn = 0; turn < 5 * MOST; turn++) {
            size_t size = some_size();
            size_t which = count > 0 ? (size_t)draw(&state, count) : 0;
            unsigned choice = (unsigned)draw(&state, 5);
            if (count < MOST && (count == 0 || choice < 2)) {
                size_t align = (size_t)1 << draw(&state, 9);
                void *block = draw(&state, 2) ? allot_reap_alloc(reap, size, align) : allot_reap_try_alloc(reap, size, align);
                live[count++] = stamp(block, size, align, &state);
            } else if (choice == 3) {
                struct stamped *old = &live[which];
                size_t kept = size < old->size ? size : old->size;
                old->start = (unsigned char *)(draw(&state, 2) ? allot_reap_resize(reap, old->start, old->size, size, old->align)
                                                               : allot_reap_try_resize(reap, old->start, old->size, size, old->align));
                EXPECT(old->start != NULL);
                expect_first(old, kept);
                *old = stamp(old->start, size, old->align, &state);
            } else {
                expect_whole(&live[which]);
                allot_reap_free_sized(reap, live[which].start, live[which].size, live[which].align);
                live[which] = live[--count];
            }
        }
        EXPECT(allot_reap_statistics(reap).live_objects == count);
        for (size_t i = 0; i < count; i++)
            expect_whole(&live[i]);
        allot_reap_trim(reap);
        for (size_t i = 0; i < count; i++)
            expect_whole(&live[i]);
        allot_reap_reset(reap);
        count = 0;
        EXPECT(allot_reap_statistics(reap).live_objects == 0);
    }
    allot_reap_destroy(reap);
}

static void blocks_of_any_layout_overlap_nowhere(void)
{
    blocks_come_and_go(NULL);
    blocks_come_and_go(&(allot_options){.name = "hardened", .hardened = true});
    blocks_come_and_go(&(allot_options){.reserved = 1 << 20, .initial = 1 << 18, .increment = 1 << 17, .release = {ALLOT_AT_ONCE, 0}});
    allot_source *source = allot_source_malloc();
    blocks_come_and_go(&(allot_options){.source = source, .release = {ALLOT_KEEP, 1 << 20}});
    allot_source_destroy(source);
}

static void blocks_know_their_size(const allot_options *options)
{
    static struct stamped live[MOST];
    size_t count = 0;
    allot_reap *reap = allot_reap_create(options);
    for (int turn = 0; turn < 10 * MOST; turn++) {
        size_t size = some_size();
        size_t which = count > 0 ? (size_t)draw(&state, count) : 0;
        unsigned choice = (unsigned)draw(&state, 5);
        if (count < MOST && (count == 0 || choice < 2)) {
            void *block = draw(&state, 2) ? allot_reap_malloc(reap, size) : allot_reap_try_realloc(reap, NULL, size);
            live[count++] = stamp(block, size, 16, &state);
        } else if (choice == 3) {
            struct stamped *old = &live[which];
            size_t kept = size < old->size ? size : old->size;
            old->start = (unsigned char *)(draw(&state, 2) ? allot_reap_realloc(reap, old->start, size)
                                                           : allot_reap_try_realloc(reap, old->start, size));
            EXPECT(old->start != NULL);
            expect_first(old, kept);
            *old = stamp(old->start, size, 16, &state);
        } else {
            expect_whole(&live[which]);
            allot_reap_free(reap, live[which].start);
            live[which] = live[--count];
        }
    }
    EXPECT(allot_reap_statistics(reap).live_objects == count);
    while (count > 0)
        allot_reap_free(reap, live[--count].start);
    allot_reap_free(reap, NULL);
    EXPECT(allot_reap_statistics(reap).live_objects == 0);
    allot_reap_destroy(reap);
}

static void what_is_none_is_freed_and_resized_as_one_may_expect(void)
{
    allot_reap *reap = allot_reap_create(NULL);
    allot_reap_free_sized(reap, NULL, 10, 8);
    void *block = allot_reap_resize(reap, NULL, 0, 100, 8);
    EXPECT(block != NULL);
    allot_reap_free_sized(reap, block, 100, 8);
    void *empty = allot_reap_alloc(reap, 0, 1), *other = allot_reap_alloc(reap, 0, 1);
    EXPECT(empty != NULL && other != NULL && empty != other);
    allot_reap_free_sized(reap, empty, 0, 1);
    allot_reap_free_sized(reap, other, 0, 1);
    allot_reap_destroy(reap);
    allot_reap_destroy(NULL);
}

static void what_can_not_be_had_is_refused_and_leaves_things_as_they_were(void)
{
    allot_reap *reap = allot_reap_create(&(allot_options){.name = "bounded", .maximum = 1 << 20});
    unsigned char *block = (unsigned char *)allot_reap_malloc(reap, 1000);
    memset(block, 7, 1000);
    EXPECT(allot_reap_try_alloc(reap, 2 << 20, 8) == NULL);
    EXPECT(allot_last_error()->kind == ALLOT_BUDGET_EXCEEDED && strcmp(allot_last_error()->name, "bounded") == 0);
    EXPECT(allot_reap_try_realloc(reap, block, 2 << 20) == NULL);
    EXPECT(allot_last_error()->kind == ALLOT_BUDGET_EXCEEDED);
    EXPECT(allot_reap_try_realloc(reap, block, SIZE_MAX) == NULL);
    EXPECT(allot_last_error()->kind == ALLOT_SIZE_OVERFLOW);
    EXPECT(block[0] == 7 && block[999] == 7);
    allot_reap_free(reap, block);
    EXPECT(allot_reap_try_malloc(reap, SIZE_MAX - 3) == NULL && allot_last_error()->kind == ALLOT_SIZE_OVERFLOW);
    EXPECT(allot_reap_try_alloc(reap, 8, 24) == NULL && allot_last_error()->kind == ALLOT_BAD_ALIGNMENT);
    EXPECT(allot_reap_try_alloc(reap, 8, 0) == NULL && allot_last_error()->kind == ALLOT_BAD_ALIGNMENT);
    EXPECT(allot_reap_try_resize(reap, NULL, 0, SIZE_MAX, 8) == NULL && allot_last_error()->kind == ALLOT_SIZE_OVERFLOW);
    allot_reap_destroy(reap);
    EXPECT(allot_reap_try_create(&(allot_options){.packing = true}) == NULL && allot_last_error()->kind == ALLOT_BAD_OPTION);
    EXPECT(allot_reap_try_create_abi(0, NULL) == NULL && allot_last_error()->kind == ALLOT_WRONG_ABI);
    EXPECT(allot_reap_try_alloc(NULL, 8, 8) == NULL && allot_last_error()->kind == ALLOT_BAD_HANDLE);
    EXPECT(allot_reap_try_malloc(NULL, 8) == NULL && allot_reap_try_realloc(NULL, NULL, 8) == NULL);
}

static void *use_elsewhere(void *argument)
{
    allot_reap *reap = (allot_reap *)argument;
    allot_reap_adopt(reap);
    allot_reap_free_sized(reap, allot_reap_alloc(reap, 50, 8), 50, 8);
    return NULL;
}

static void a_hardened_reap_is_given_over_to_another_thread(void)
{
    pthread_t thread;
    allot_reap *reap = allot_reap_create(&(allot_options){.hardened = true});
    EXPECT(pthread_create(&thread, NULL, use_elsewhere, reap) == 0 && pthread_join(thread, NULL) == 0);
    EXPECT(allot_reap_try_alloc(reap, 8, 8) == NULL && allot_last_error()->kind == ALLOT_WRONG_THREAD);
    allot_reap_adopt(reap);
    EXPECT(allot_reap_try_alloc(reap, 8, 8) != NULL);
    allot_reap_destroy(reap);
}

int main(void)
{
    blocks_of_any_layout_overlap_nowhere();
    blocks_know_their_size(NULL);
    blocks_know_their_size(&(allot_options){.hardened = true});
    what_is_none_is_freed_and_resized_as_one_may_expect();
    what_can_not_be_had_is_refused_and_leaves_things_as_they_were();
    a_hardened_reap_is_given_over_to_another_thread();
    return 0;
}
