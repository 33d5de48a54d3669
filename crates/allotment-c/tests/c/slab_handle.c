/* Slab handles: the inline calls and the library use the same cache, and so do all handles of a thread. */
#include <allotment.h>

#include <pthread.h>

#include "stamped.h"
#include "watched.h"

#define MOST 5000

static uint64_t state = 362436069362436069u;

static void inline_calls_and_the_librarys_mix(size_t size, const allot_options *options)
{
    static struct stamped live[MOST];
    size_t count = 0;
    allot_slab *slab = allot_slab_create(size, 8, options);
    allot_slab_handle *handles[2] = {allot_slab_handle_create(slab), allot_slab_handle_try_create(slab)};
    EXPECT(handles[0] != NULL && handles[1] != NULL);
    for (int turn = 0; turn < 20 * MOST; turn++) {
        allot_slab_handle *handle = handles[draw(&state, 2)];
        bool grows = turn % (4 * MOST) < 2 * MOST;
        if (count < MOST && (count == 0 || draw(&state, 4) < (grows ? 3 : 1))) {
            void *slot;
            switch (draw(&state, 4)) {
            case 0: slot = allot_slab_handle_alloc(handle); break;
            case 1: slot = allot_slab_handle_try_alloc(handle); break;
            case 2: slot = allot_slab_handle_alloc_slowly(handle); break;
            default: slot = allot_slab_alloc(slab);
            }
            live[count++] = stamp(slot, size, 8, &state);
        } else {
            size_t which = (size_t)draw(&state, count);
            expect_whole(&live[which]);
            switch (draw(&state, 4)) {
            case 0: allot_slab_handle_free_slowly(handle, live[which].start); break;
            case 1: allot_slab_free(slab, live[which].start); break;
            default: allot_slab_handle_free(handle, live[which].start);
            }
            live[which] = live[--count];
        }
    }
    EXPECT(allot_slab_statistics(slab).live_objects == count);
    while (count > 0) {
        count -= 1;
        allot_slab_handle_free(handles[count % 2], live[count].start);
    }
    allot_slab_handle_free(handles[0], NULL);
    EXPECT(allot_slab_statistics(slab).live_objects == 0);
    for (int i = 0; i < 2; i++)
        allot_slab_handle_destroy(handles[i]);
    allot_slab_destroy(slab);
}

static void slots_of_another_slab_take_the_slow_path(void)
{
    /* Which stops them; here their own does it. The inline push must not keep them. */
    allot_slab *slabs[2] = {allot_slab_create(64, 8, NULL), allot_slab_create(64, 8, NULL)};
    allot_slab_handle *handles[2] = {allot_slab_handle_create(slabs[0]), allot_slab_handle_create(slabs[1])};
    void *slots[2] = {allot_slab_handle_alloc(handles[0]), allot_slab_handle_alloc(handles[1])};
    EXPECT(slots[0] != slots[1]);
    for (int i = 0; i < 2; i++) {
        allot_slab_handle_free(handles[i], slots[i]);
        EXPECT(allot_slab_statistics(slabs[i]).live_objects == 0);
        EXPECT(is_watched() || allot_slab_handle_alloc(handles[i]) == slots[i]);
        allot_slab_handle_destroy(handles[i]);
        allot_slab_destroy(slabs[i]);
    }
}

static void *in_a_thread(void *argument)
{
    allot_slab *slab = (allot_slab *)argument;
    void *slots[300];
    allot_slab_handle *handle = allot_slab_handle_create(slab);
    for (int round = 0; round < 50; round++) {
        for (int i = 0; i < 300; i++)
            *(int **)(slots[i] = allot_slab_handle_alloc(handle)) = &round;
        for (int i = 0; i < 300; i++) {
            EXPECT(*(int **)slots[i] == &round);
            allot_slab_handle_free(handle, slots[i]);
        }
    }
    allot_slab_handle_destroy(handle);
    return NULL;
}

static void threads_have_handles_of_their_own(void)
{
    pthread_t threads[4];
    allot_slab *slab = allot_slab_create(32, 8, NULL);
    for (int i = 0; i < 4; i++)
        EXPECT(pthread_create(&threads[i], NULL, in_a_thread, slab) == 0);
    for (int i = 0; i < 4; i++)
        EXPECT(pthread_join(threads[i], NULL) == 0);
    EXPECT(allot_slab_statistics(slab).live_objects == 0);
    allot_slab_destroy(slab);
}

static void what_can_not_be_had_is_refused_with_a_reason(void)
{
    EXPECT(allot_slab_handle_try_create(NULL) == NULL);
    EXPECT(allot_last_error()->kind == ALLOT_BAD_HANDLE);
    EXPECT(allot_slab_handle_try_alloc(NULL) == NULL);
    EXPECT(allot_last_error()->kind == ALLOT_BAD_HANDLE);
    EXPECT(strcmp(allot_last_error()->allocator, "slab handle") == 0);
    allot_slab_handle_destroy(NULL);
    allot_budget *budget = allot_budget_create(100000);
    allot_slab *slab = allot_slab_create(5000, 8, &(allot_options){.budget = budget});
    allot_slab_handle *handle = allot_slab_handle_create(slab);
    void *slots[30];
    size_t count = 0;
    while ((slots[count] = allot_slab_handle_try_alloc(handle)) != NULL)
        EXPECT(++count < 30);
    EXPECT(allot_last_error()->kind == ALLOT_BUDGET_EXCEEDED && allot_last_error()->requested > 0);
    while (count > 0)
        allot_slab_handle_free(handle, slots[--count]);
    allot_slab_handle_destroy(handle);
    allot_slab_destroy(slab);
    allot_budget_destroy(budget);
}

int main(void)
{
    inline_calls_and_the_librarys_mix(48, NULL);
    inline_calls_and_the_librarys_mix(8, &(allot_options){.packing = true});
    inline_calls_and_the_librarys_mix(3000, &(allot_options){.max_cached_bytes = 4096});
    inline_calls_and_the_librarys_mix(48, &(allot_options){.hardened = true});
    slots_of_another_slab_take_the_slow_path();
    threads_have_handles_of_their_own();
    what_can_not_be_had_is_refused_with_a_reason();
    return 0;
}
