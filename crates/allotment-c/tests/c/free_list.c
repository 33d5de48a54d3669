/* Free lists: the inline path and the library share one list; runs, trimming, statistics. */
#include <allotment.h>

#include <stdint.h>

#include "expect.h"

#define MOST 20000

static uint64_t state = 88172645463325252u;

static uint64_t draw(uint64_t below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % below;
}

struct object {
    unsigned char *start;
    unsigned char fill;
};

static void objects_overlap_nowhere(size_t size, size_t align, const allot_options *options)
{
    static struct object objects[MOST];
    allot_free_list *list = allot_free_list_create(size, align, options);
    size_t count = 0, bytes = size == 0 ? 1 : size;
    EXPECT(allot_free_list_stride(list) >= bytes && allot_free_list_stride(list) % align == 0);
    for (int phase = 0; phase < 12; phase++) {
        size_t goal = phase % 2 ? draw(300) : 300 + draw(MOST - 300);
        while (count != goal) {
            if (count < goal) {
                struct object *object = &objects[count++];
                object->start = draw(2) ? allot_free_list_alloc(list) : allot_free_list_try_alloc(list);
                object->fill = (unsigned char)draw(256);
                EXPECT(object->start != NULL && (uintptr_t)object->start % align == 0);
                memset(object->start, object->fill, bytes);
            } else {
                struct object *object = &objects[draw(count)];
                for (size_t i = 0; i < bytes; i++)
                    EXPECT(object->start[i] == object->fill);
                allot_free_list_free(list, object->start);
                *object = objects[--count];
            }
        }
        EXPECT(allot_free_list_live(list) == count);
        allot_statistics statistics = allot_free_list_statistics(list);
        EXPECT(statistics.live_objects == count && statistics.live_bytes == count * bytes);
        if (phase % 4 == 3)
            (void)allot_free_list_trim(list);
    }
    while (count > 0)
        allot_free_list_free(list, objects[--count].start);
    EXPECT(allot_free_list_live(list) == 0);
    (void)allot_free_list_trim(list);
    EXPECT(allot_free_list_statistics(list).held_bytes == 0);
    allot_free_list_destroy(list);
}

static void the_last_freed_is_the_first_used(void)
{
    allot_free_list *list = allot_free_list_create(24, 8, NULL);
    void *first = allot_free_list_alloc(list), *second = allot_free_list_alloc(list);
    EXPECT(first != second);
    allot_free_list_free(list, first);
    allot_free_list_free(list, second);
    allot_free_list_free(list, NULL);
    EXPECT(allot_free_list_live(list) == 0);
#ifndef ALLOT_OUT_OF_LINE
    /* Where a memory tool is there, or all are hardened, freed objects rest, and have a red zone behind them. */
    if (allot_free_list_stride(list) == 24) {
        EXPECT(allot_free_list_alloc(list) == second && allot_free_list_alloc(list) == first);
        allot_free_list_free(list, first);
        allot_free_list_free(list, second);
    }
#endif
    allot_free_list_destroy(list);
}

static void a_run_lies_behind_itself(void)
{
    allot_free_list *list = allot_free_list_create(40, 8, NULL);
    size_t stride = allot_free_list_stride(list);
    for (size_t count = 1; count <= 3000; count = count * 3 + 1) {
        char *run = count % 2 ? allot_free_list_alloc_run(list, count) : allot_free_list_try_alloc_run(list, count);
        EXPECT(run != NULL && allot_free_list_live(list) == count);
        for (size_t i = 0; i < count; i++)
            memset(run + i * stride, (int)i, 40);
        for (size_t i = 0; i < count; i++)
            EXPECT((unsigned char)run[i * stride + 39] == (unsigned char)i);
        for (size_t i = 0; i < count; i++)
            allot_free_list_free(list, run + i * stride);
    }
    EXPECT(allot_free_list_alloc_run(list, 0) != NULL && allot_free_list_live(list) == 0);
    EXPECT(allot_free_list_try_alloc_run(list, SIZE_MAX / 8) == NULL);
    EXPECT(allot_last_error()->kind == ALLOT_SIZE_OVERFLOW || allot_last_error()->kind == ALLOT_SYSTEM);
    allot_free_list_destroy(list);
}

static void options_have_their_effect(void)
{
    allot_free_list *list =
        allot_free_list_create(100, 4, &(allot_options){.name = "nodes", .objects_per_chunk = 5000});
    allot_free_list_free(list, allot_free_list_alloc(list));
    EXPECT(allot_free_list_statistics(list).held_bytes >= 5000 * 100);
    static char text[1 << 16];
    (void)allot_report_json(text, sizeof(text));
    EXPECT(strstr(text, "\"name\":\"nodes\",\"kind\":\"free list\"") != NULL);
    allot_free_list_destroy(list);

    list = allot_free_list_create(64, 8, &(allot_options){.release = {ALLOT_AT_ONCE, 0}});
    void *objects[1000];
    for (int i = 0; i < 1000; i++)
        objects[i] = allot_free_list_alloc(list);
    uint64_t held = allot_free_list_statistics(list).held_bytes;
    for (int i = 0; i < 1000; i++)
        allot_free_list_free(list, objects[i]);
    EXPECT(allot_free_list_statistics(list).held_bytes <= held);
    allot_free_list_destroy(list);
}

int main(void)
{
    static const allot_options hardened = {.name = "hardened", .hardened = true};
    objects_overlap_nowhere(24, 8, NULL);
    objects_overlap_nowhere(0, 1, NULL);
    objects_overlap_nowhere(3, 1, NULL);
    objects_overlap_nowhere(100, 64, NULL);
    objects_overlap_nowhere(24, 8, &hardened);
    objects_overlap_nowhere(4000, 16, &(allot_options){.release = {ALLOT_KEEP, 1 << 20}});
    the_last_freed_is_the_first_used();
    a_run_lies_behind_itself();
    options_have_their_effect();
    return 0;
}
