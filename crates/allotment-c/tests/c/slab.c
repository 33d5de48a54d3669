/* Slabs: slots of any layout and option never overlap; many at once; by size; by address alone; statistics;
 * errors. */
#include <allotment.h>

#include "stamped.h"
#include "watched.h"

#define MOST 2000

static uint64_t state = 88172645463325252u;

static void slots_come_and_go(size_t size, size_t align, const allot_options *options)
{
    static struct stamped live[MOST];
    size_t count = 0;
    allot_slab *slab = allot_slab_create(size, align, options);
    EXPECT(slab != NULL && allot_slab_slot_size(slab) == (size > 0 ? size : 1));
    for (int turn = 0; turn < 10 * MOST; turn++) {
        bool grows = turn % (4 * MOST) < 2 * MOST;
        if (count < MOST && (count == 0 || draw(&state, 4) < (grows ? 3 : 1))) {
            void *slot = draw(&state, 2) ? allot_slab_alloc(slab) : allot_slab_try_alloc(slab);
            live[count++] = stamp(slot, size, align, &state);
        } else {
            size_t which = (size_t)draw(&state, count);
            expect_whole(&live[which]);
            if (draw(&state, 2))
                allot_slab_free(slab, live[which].start);
            else
                allot_slab_free_anywhere(live[which].start);
            live[which] = live[--count];
        }
    }
    EXPECT(allot_slab_statistics(slab).live_objects == count);
    while (count > 0) {
        expect_whole(&live[--count]);
        allot_slab_free(slab, live[count].start);
    }
    EXPECT(allot_slab_statistics(slab).live_objects == 0);
    allot_slab_trim(slab);
    EXPECT(allot_slab_statistics(slab).chunks == 0);
    allot_slab_destroy(slab);
}

static void slots_of_any_layout_and_option_overlap_nowhere(void)
{
    slots_come_and_go(48, 16, NULL);
    slots_come_and_go(0, 1, NULL);
    slots_come_and_go(1, 1, NULL);
    slots_come_and_go(24, 8, NULL);
    slots_come_and_go(100, 64, NULL);
    slots_come_and_go(3000, 4096, NULL);
    slots_come_and_go(48, 16, &(allot_options){.name = "packed", .packing = true, .max_cached_bytes = 1});
    slots_come_and_go(48, 16, &(allot_options){.release = {ALLOT_AT_ONCE, 0}, .max_page_bytes = 4096});
    slots_come_and_go(48, 16, &(allot_options){.hardened = true});
    allot_source *source = allot_source_malloc();
    slots_come_and_go(48, 16, &(allot_options){.source = source, .release = {ALLOT_KEEP, 100000}});
    allot_source_destroy(source);
}

static void many_come_and_go_at_once(void)
{
    void *slots[MOST];
    allot_slab *slab = allot_slab_create(40, 8, NULL);
    allot_slab_reserve(slab, MOST);
    EXPECT(is_watched() || allot_slab_statistics(slab).free_bytes >= MOST * 40);
    EXPECT(allot_slab_try_alloc_many(slab, slots, MOST));
    for (size_t i = 0; i < MOST; i++)
        memset(slots[i], (int)i, 40);
    for (size_t i = 0; i < MOST; i++)
        EXPECT(((unsigned char *)slots[i])[0] == (unsigned char)i && ((unsigned char *)slots[i])[39] == (unsigned char)i);
    EXPECT(allot_slab_statistics(slab).live_objects == MOST);
    /* NULLs in between are passed over. */
    void *spared = slots[7];
    slots[7] = NULL;
    allot_slab_free_many(slab, slots, MOST);
    EXPECT(allot_slab_statistics(slab).live_objects == 1);
    allot_slab_free(slab, spared);
    allot_slab_alloc_many(slab, slots, 3);
    allot_slab_free_many(slab, slots, 3);
    allot_slab_alloc_many(slab, NULL, 0);
    allot_slab_free_many(slab, NULL, 0);
    allot_slab_free(slab, NULL);
    allot_slab_free_anywhere(NULL);
    allot_slab_flush(slab);
    EXPECT(allot_slab_statistics(slab).live_objects == 0);
    allot_slab_destroy(slab);
}

static void lifetimes_lie_on_pages_of_their_own(void)
{
    allot_slab *slab = allot_slab_create(64, 64, NULL);
    void *shorter = allot_slab_alloc_for(slab, ALLOT_SHORT_LIVED);
    void *longer = allot_slab_alloc_for(slab, ALLOT_LONG_LIVED);
    EXPECT((uintptr_t)shorter / 4096 != (uintptr_t)longer / 4096 || is_watched());
    EXPECT(allot_slab_try_alloc_for(slab, (allot_lifetime)7) == NULL);
    EXPECT(allot_last_error()->kind == ALLOT_BAD_OPTION);
    allot_slab_set_packing(slab, true);
    allot_slab_free(slab, shorter);
    allot_slab_free(slab, longer);
    allot_slab_destroy(slab);
}

static void slabs_by_size_are_shared(void)
{
    allot_slab *one = allot_slab_by_size(40, 8);
    allot_slab *other = allot_slab_try_by_size(45, 16);
    EXPECT(one != NULL && other != NULL);
    EXPECT(allot_slab_slot_size(one) == 48 && allot_slab_slot_size(other) == 48);
    void *slot = allot_slab_alloc(one);
    EXPECT(allot_slab_statistics(other).live_objects == 1);
    allot_slab_free(other, slot);
    slot = allot_slab_alloc(other);
    allot_slab_destroy(other);
    allot_slab_free(one, slot);
    EXPECT(allot_slab_statistics(one).live_objects == 0);
    allot_slab_destroy(one);
}

static void slots_outlive_their_slab(void)
{
    void *slots[100];
    allot_slab *slab = allot_slab_create(200, 8, NULL);
    allot_slab_alloc_many(slab, slots, 100);
    for (int i = 0; i < 100; i++)
        memset(slots[i], i, 200);
    allot_slab_destroy(slab);
    for (int i = 0; i < 100; i++) {
        EXPECT(((unsigned char *)slots[i])[199] == i);
        allot_slab_free_anywhere(slots[i]);
    }
}

static void what_can_not_be_had_is_refused_with_a_reason(void)
{
    EXPECT(allot_slab_try_create(8, 3, NULL) == NULL);
    EXPECT(allot_last_error()->kind == ALLOT_BAD_ALIGNMENT);
    EXPECT(allot_slab_try_create(SIZE_MAX - 5, 8, NULL) == NULL);
    EXPECT(allot_last_error()->kind == ALLOT_SIZE_OVERFLOW);
    EXPECT(allot_slab_try_by_size(SIZE_MAX / 2, 8) == NULL);
    EXPECT(allot_last_error()->kind == ALLOT_SIZE_OVERFLOW);
    EXPECT(allot_slab_try_create(8, 8, &(allot_options){.initial = 5}) == NULL);
    EXPECT(allot_last_error()->kind == ALLOT_BAD_OPTION && strstr(allot_last_error()->message, "initial") != NULL);
    EXPECT(allot_slab_try_create_abi(ALLOT_ABI + 1, 8, 8, NULL) == NULL);
    EXPECT(allot_last_error()->kind == ALLOT_WRONG_ABI);
    EXPECT(allot_slab_try_alloc(NULL) == NULL);
    EXPECT(allot_last_error()->kind == ALLOT_BAD_HANDLE);
    EXPECT(!allot_slab_try_reserve(NULL, 1) && !allot_slab_try_alloc_many(NULL, NULL, 0));
    allot_slab_destroy(NULL);

    allot_budget *budget = allot_budget_create(64 << 10);
    allot_slab *slab = allot_slab_create(1000, 8, &(allot_options){.name = "small", .budget = budget});
    static void *slots[200];
    size_t count = 0;
    while ((slots[count] = allot_slab_try_alloc(slab)) != NULL)
        EXPECT(++count < 200);
    EXPECT(count > 20 && allot_last_error()->kind == ALLOT_BUDGET_EXCEEDED);
    EXPECT(strcmp(allot_last_error()->name, "small") == 0 && strcmp(allot_last_error()->allocator, "slab") == 0);
    allot_error before = *allot_last_error();
    EXPECT(is_watched() || !allot_slab_try_reserve(slab, 1000));
    static void *more[100];
    EXPECT(!allot_slab_try_alloc_many(slab, more, 100));
    EXPECT(allot_slab_statistics(slab).live_objects == count);
    EXPECT(allot_last_error()->kind == before.kind);
    allot_slab_free_many(slab, slots, count);
    EXPECT(allot_slab_try_alloc(slab) != NULL);
    allot_slab_destroy(slab);
    allot_budget_destroy(budget);
}

int main(void)
{
    slots_of_any_layout_and_option_overlap_nowhere();
    many_come_and_go_at_once();
    lifetimes_lie_on_pages_of_their_own();
    slabs_by_size_are_shared();
    slots_outlive_their_slab();
    what_can_not_be_had_is_refused_with_a_reason();
    return 0;
}
