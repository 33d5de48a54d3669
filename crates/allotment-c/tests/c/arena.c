/* Arenas: the inline path and the library agree for every size and alignment; marks, resets, resizing;
 * statistics. */
#include <allotment.h>

#include <stdint.h>

#include "expect.h"

#define MOST 4096

struct object {
    unsigned char *start;
    size_t size;
    size_t align;
    unsigned char fill;
};

static uint64_t state = 88172645463325252u;

static uint64_t draw(uint64_t below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % below;
}

static void fill(struct object *object)
{
    object->fill = (unsigned char)draw(256);
    memset(object->start, object->fill, object->size);
}

static void expect_whole(const struct object *object)
{
    EXPECT((uintptr_t)object->start % object->align == 0);
    for (size_t i = 0; i < object->size; i++)
        EXPECT(object->start[i] == object->fill);
}

static struct object take(allot_arena *arena, size_t size, size_t align)
{
    struct object object = {.size = size, .align = align, .fill = 0, .start = NULL};
    object.start = draw(2) ? allot_arena_alloc_aligned(arena, size, align) : allot_arena_try_alloc_aligned(arena, size, align);
    EXPECT(object.start != NULL);
    fill(&object);
    return object;
}

static void objects_of_any_layout_overlap_nowhere(const allot_options *options)
{
    static struct object objects[MOST];
    allot_arena *arena = allot_arena_create(options);
    for (int round = 0; round < 20; round++) {
        size_t count = 1 + draw(MOST), bytes = 0;
        for (size_t i = 0; i < count; i++) {
            size_t size = 1 + draw(draw(50) == 0 ? 20000 : 100);
            objects[i] = take(arena, size, (size_t)1 << draw(draw(20) == 0 ? 13 : 6));
            bytes += size;
        }
        allot_statistics statistics = allot_arena_statistics(arena);
        EXPECT(statistics.live_objects == count && statistics.live_bytes == bytes);
        for (size_t i = 0; i < count; i++)
            expect_whole(&objects[i]);
        allot_arena_reset(arena);
        statistics = allot_arena_statistics(arena);
        EXPECT(statistics.live_objects == 0 && statistics.live_bytes == 0);
    }
    allot_arena_destroy(arena);
}

static void sizes_at_the_edges_of_the_inline_path_work(void)
{
    static const size_t sizes[] = {
        0, 1, 7, 8, 9, 4095, 4096, 4097, (1u << 20) - 17, (1u << 20) - 16, (1u << 20) - 15, 1u << 20,
        ALLOT_MAX_STEP - 1, ALLOT_MAX_STEP, ALLOT_MAX_STEP + 1, 3 * ALLOT_MAX_STEP,
    };
    allot_arena *arena = allot_arena_create(NULL);
    uint64_t bytes = 0, count = 0;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        size_t size = sizes[i] == 0 ? 1 : sizes[i];
        for (size_t align = 1; align <= 64; align *= 2) {
            unsigned char *object = allot_arena_alloc_aligned(arena, sizes[i], align);
            EXPECT((uintptr_t)object % align == 0);
            object[0] = 1;
            object[size - 1] = 2;
            bytes += size;
            count += 1;
        }
    }
    allot_statistics statistics = allot_arena_statistics(arena);
    EXPECT(statistics.live_bytes == bytes && statistics.live_objects == count);
    EXPECT((uintptr_t)allot_arena_alloc(arena, 3) % 16 == 0);
    EXPECT((uintptr_t)allot_arena_try_alloc(arena, 3) % 16 == 0);
    allot_arena_destroy(arena);
}

struct point {
    double x, y;
    char tag;
};

static void typed_calls_give_room_for_their_types(void)
{
    allot_arena *arena = allot_arena_create(NULL);
    struct point *one = ALLOT_ARENA_NEW(arena, struct point);
    struct point *many = ALLOT_ARENA_ARRAY(arena, struct point, 100);
    EXPECT((uintptr_t)one % _Alignof(struct point) == 0 && (uintptr_t)many % _Alignof(struct point) == 0);
    one->tag = 1;
    many[99].tag = 2;
    EXPECT(allot_arena_statistics(arena).live_bytes == 101 * sizeof(struct point));
    EXPECT(ALLOT_ARENA_TRY_ARRAY(arena, struct point, SIZE_MAX / 2) == NULL);
    EXPECT(allot_last_error()->kind == ALLOT_SIZE_OVERFLOW);
    EXPECT(ALLOT_ARENA_TRY_NEW(arena, struct point) != NULL);
    EXPECT(ALLOT_ARENA_TRY_ARRAY(arena, struct point, 3) != NULL);
    allot_arena_destroy(arena);
}

static void copies_and_zeros_are_what_they_say(void)
{
    allot_arena *arena = allot_arena_create(NULL);
    for (int round = 0; round < 3; round++) {
        unsigned char *zeros = allot_arena_calloc(arena, 100, 30);
        for (int i = 0; i < 3000; i++)
            EXPECT(zeros[i] == 0);
        memset(zeros, 7, 3000);
        allot_arena_reset(arena);
    }
    unsigned char *one = allot_arena_try_calloc(arena, 0, 30);
    EXPECT(one != NULL && one[0] == 0);
    EXPECT(strcmp(allot_arena_strdup(arena, "text"), "text") == 0);
    EXPECT(strcmp(allot_arena_try_strdup(arena, ""), "") == 0);
    EXPECT(strcmp(allot_arena_strndup(arena, "text", 2), "te") == 0);
    EXPECT(strcmp(allot_arena_try_strndup(arena, "text", SIZE_MAX), "text") == 0);
    static const char unended[3] = {'a', 'b', 'c'};
    EXPECT(strcmp(allot_arena_strndup(arena, unended, 3), "abc") == 0);
    EXPECT(strcmp(allot_arena_strndup(arena, NULL, 0), "") == 0);
    int numbers[4] = {1, 2, 3, 4};
    int *copy = allot_arena_memdup(arena, numbers, sizeof(numbers));
    EXPECT(memcmp(copy, numbers, sizeof(numbers)) == 0 && (uintptr_t)copy % 16 == 0);
    EXPECT(allot_arena_try_memdup(arena, NULL, 0) != NULL);
    allot_arena_destroy(arena);
}

static void resized_objects_keep_their_bytes(const allot_options *options)
{
    static struct object objects[64];
    allot_arena *arena = allot_arena_create(options);
    size_t bytes = 0;
    for (int i = 0; i < 64; i++) {
        objects[i] = take(arena, 1 + draw(300), (size_t)1 << draw(5));
        bytes += objects[i].size;
    }
    for (int round = 0; round < 4000; round++) {
        struct object *object = &objects[draw(3) == 0 ? 63 : draw(64)];
        size_t size = 1 + draw(draw(100) == 0 ? 100000 : 500);
        size_t kept = size < object->size ? size : object->size;
        unsigned char *moved = draw(2) ? allot_arena_resize(arena, object->start, object->size, size, object->align)
                                       : allot_arena_try_resize(arena, object->start, object->size, size, object->align);
        EXPECT(moved != NULL);
        for (size_t i = 0; i < kept; i++)
            EXPECT(moved[i] == object->fill);
        bytes += size - object->size;
        object->start = moved;
        object->size = size;
        fill(object);
    }
    for (int i = 0; i < 64; i++)
        expect_whole(&objects[i]);
    EXPECT(allot_arena_statistics(arena).live_bytes == bytes);
    for (int i = 0; i < 64; i++)
        allot_arena_free_sized(arena, objects[i].start, objects[i].size, objects[i].align);
    EXPECT(allot_arena_statistics(arena).live_objects == 0 && allot_arena_statistics(arena).live_bytes == 0);
    /* NULL is an object to be made. */
    EXPECT(allot_arena_resize(arena, NULL, 0, 10, 8) != NULL);
    EXPECT(allot_arena_statistics(arena).live_objects == 1);
    allot_arena_destroy(arena);
}

static void a_resize_that_fails_leaves_the_object(void)
{
    allot_budget *budget = allot_budget_create(64 << 10);
    allot_arena *arena = allot_arena_create(&(allot_options){.budget = budget});
    struct object object = take(arena, 1000, 16);
    EXPECT(allot_arena_try_resize(arena, object.start, 1000, 1 << 20, 16) == NULL);
    EXPECT(allot_last_error()->kind == ALLOT_BUDGET_EXCEEDED);
    EXPECT(allot_arena_try_resize(arena, object.start, 1000, SIZE_MAX, 16) == NULL);
    EXPECT(allot_arena_try_resize(arena, object.start, 1000, 10, 3) == NULL);
    expect_whole(&object);
    EXPECT(allot_arena_statistics(arena).live_objects == 1 && allot_arena_statistics(arena).live_bytes == 1000);
    allot_arena_destroy(arena);
    EXPECT(allot_budget_used(budget) == 0);
    allot_budget_destroy(budget);
}

static void a_rewind_frees_what_came_since_the_mark(const allot_options *options)
{
    allot_arena *arena = allot_arena_create(options);
    struct object before = take(arena, 100, 8);
    for (int round = 0; round < 50; round++) {
        allot_statistics at_mark = allot_arena_statistics(arena);
        allot_arena_position outer = allot_arena_mark(arena);
        struct object middle = take(arena, 1 + draw(5000), 16);
        allot_arena_position inner = allot_arena_mark(arena);
        for (int i = 0; i < 100; i++)
            (void)take(arena, 1 + draw(3000), 32);
        allot_arena_rewind(arena, &inner);
        expect_whole(&middle);
        EXPECT(allot_arena_statistics(arena).live_objects == at_mark.live_objects + 1);
        (void)take(arena, 700, 8);
        allot_arena_rewind(arena, &inner);
        expect_whole(&middle);
        allot_arena_rewind(arena, &outer);
        EXPECT(allot_arena_statistics(arena).live_objects == at_mark.live_objects);
        EXPECT(allot_arena_statistics(arena).live_bytes == at_mark.live_bytes);
        expect_whole(&before);
    }
    allot_arena_destroy(arena);
}

static void older_objects_keep_their_place_until_the_rewind(void)
{
    allot_arena *arena = allot_arena_create(NULL);
    struct object old = take(arena, 64, 8);
    allot_arena_position mark = allot_arena_mark(arena);
    unsigned char *larger = allot_arena_resize(arena, old.start, 64, 128, 8);
    EXPECT(larger != old.start && larger[63] == old.fill);
    allot_arena_rewind(arena, &mark);
    expect_whole(&old);
    struct object next = take(arena, 64, 8);
    EXPECT(next.start >= old.start + 64);
    expect_whole(&old);
    allot_arena_destroy(arena);
}

static void the_hint_is_taken_at_once_and_resets_keep_what_was_asked(void)
{
    allot_arena *arena = allot_arena_create(&(allot_options){.hint = 1 << 20});
    EXPECT(allot_arena_statistics(arena).held_bytes >= 1 << 20);
    allot_arena_destroy(arena);
    arena = allot_arena_create(&(allot_options){.retain = {ALLOT_RETAIN_NOTHING, 0}});
    EXPECT(allot_arena_statistics(arena).held_bytes == 0);
    (void)take(arena, 100000, 8);
    allot_arena_reset(arena);
    EXPECT(allot_arena_statistics(arena).held_bytes == 0);
    allot_arena_destroy(arena);
    arena = allot_arena_create(&(allot_options){.retain = {ALLOT_RETAIN_UP_TO, 10 << 20}});
    for (int i = 0; i < 100; i++)
        (void)take(arena, 10000, 8);
    uint64_t held = allot_arena_statistics(arena).held_bytes;
    allot_arena_reset(arena);
    EXPECT(allot_arena_statistics(arena).held_bytes == held);
    allot_arena_destroy(arena);
}

static void a_named_arena_is_in_the_report(void)
{
    allot_arena *arena = allot_arena_create(&(allot_options){.name = "in the report"});
    (void)take(arena, 1234, 8);
    static char text[1 << 16];
    size_t len = allot_report_text(text, sizeof(text));
    EXPECT(len == strlen(text) && strstr(text, "in the report") != NULL && strstr(text, "1234") != NULL);
    EXPECT(allot_report_text(NULL, 0) == len);
    char little[10];
    EXPECT(allot_report_text(little, sizeof(little)) == len && strlen(little) == 9);
    len = allot_report_json(text, sizeof(text));
    EXPECT(len == strlen(text) && strstr(text, "\"name\":\"in the report\",\"kind\":\"arena\"") != NULL);
    allot_arena_destroy(arena);
    (void)allot_report_json(text, sizeof(text));
    EXPECT(strstr(text, "in the report") == NULL);
}

static void a_hardened_arena_is_found_by_address(void)
{
    allot_arena *arena = allot_arena_create(&(allot_options){.name = "owner", .hardened = true});
    void *object = allot_arena_alloc(arena, 40);
    const char *kind;
    char name[ALLOT_MAX_NAME + 1];
    allot_statistics statistics;
    EXPECT(allot_owner_of(object, &kind, name, &statistics));
    EXPECT(strcmp(kind, "arena") == 0 && strcmp(name, "owner") == 0 && statistics.live_bytes == 40);
    EXPECT(allot_owner_of(object, NULL, NULL, NULL));
    EXPECT(!allot_owner_of(name, &kind, name, &statistics) && !allot_owner_of(NULL, NULL, NULL, NULL));
    allot_arena_destroy(arena);
    EXPECT(!allot_owner_of(object, NULL, NULL, NULL));
}

static void the_recycler_keeps_what_it_may(void)
{
    size_t limit = allot_recycler_limit();
    allot_recycler_set_limit(1 << 20);
    EXPECT(allot_recycler_limit() == 1 << 20);
    allot_arena_destroy(allot_arena_create(&(allot_options){.hint = 300 << 10}));
    EXPECT(allot_recycler_cached_bytes() <= 1 << 20);
    allot_recycler_set_policy((allot_release){ALLOT_KEEP, 1 << 19});
    (void)allot_recycler_trim();
    EXPECT(allot_recycler_cached_bytes() == 0);
    allot_recycler_set_policy((allot_release){ALLOT_ADAPTIVE, 0});
    allot_recycler_set_limit(limit);
}

int main(void)
{
    static const allot_options hardened = {.name = "hardened", .hardened = true};
    objects_of_any_layout_overlap_nowhere(NULL);
    objects_of_any_layout_overlap_nowhere(&hardened);
    objects_of_any_layout_overlap_nowhere(&(allot_options){.release = {ALLOT_AT_ONCE, 0}, .hint = 50000});
    sizes_at_the_edges_of_the_inline_path_work();
    typed_calls_give_room_for_their_types();
    copies_and_zeros_are_what_they_say();
    resized_objects_keep_their_bytes(NULL);
    resized_objects_keep_their_bytes(&hardened);
    a_resize_that_fails_leaves_the_object();
    a_rewind_frees_what_came_since_the_mark(NULL);
    a_rewind_frees_what_came_since_the_mark(&hardened);
    older_objects_keep_their_place_until_the_rewind();
    the_hint_is_taken_at_once_and_resets_keep_what_was_asked();
    a_named_arena_is_in_the_report();
    a_hardened_arena_is_found_by_address();
    the_recycler_keeps_what_it_may();
    return 0;
}
