/* Hardened mode: misuse of handles and objects of arenas, free lists, budgets and sources is named and
 * stopped; correct use works. */
#include <allotment.h>

#include <pthread.h>
#include <stdint.h>

#include "expect.h"

static const allot_options hardened = {.name = "guarded", .hardened = true};

static allot_arena *arena_of_another_thread;
static allot_free_list *list_of_another_thread;

static void *try_by_another_thread(void *unused)
{
    (void)unused;
    EXPECT(allot_arena_try_alloc(arena_of_another_thread, 8) == NULL);
    EXPECT(allot_last_error()->kind == ALLOT_WRONG_THREAD && strcmp(allot_last_error()->name, "guarded") == 0);
    allot_clear_error();
    EXPECT(allot_free_list_try_alloc(list_of_another_thread) == NULL);
    EXPECT(allot_last_error()->kind == ALLOT_WRONG_THREAD);
    EXPECT(strstr(allot_last_error()->message, "_adopt") != NULL);
    return NULL;
}

static void *adopt_and_use(void *unused)
{
    (void)unused;
    allot_arena_adopt(arena_of_another_thread);
    allot_free_list_adopt(list_of_another_thread);
    EXPECT(allot_arena_try_alloc(arena_of_another_thread, 8) != NULL);
    EXPECT(allot_free_list_try_alloc(list_of_another_thread) != NULL);
    return NULL;
}

static void on_another_thread(void *(*run)(void *))
{
    pthread_t thread;
    EXPECT(pthread_create(&thread, NULL, run, NULL) == 0);
    EXPECT(pthread_join(thread, NULL) == 0);
}

static void another_thread_is_refused_until_it_adopts(void)
{
    arena_of_another_thread = allot_arena_create(&hardened);
    list_of_another_thread = allot_free_list_create(16, 8, &hardened);
    EXPECT(allot_arena_try_alloc(arena_of_another_thread, 8) != NULL);
    on_another_thread(try_by_another_thread);
    on_another_thread(adopt_and_use);
    EXPECT(allot_arena_try_alloc(arena_of_another_thread, 8) == NULL);
    EXPECT(allot_last_error()->kind == ALLOT_WRONG_THREAD);
    allot_arena_adopt(arena_of_another_thread);
    allot_free_list_adopt(list_of_another_thread);
    EXPECT(allot_arena_try_alloc(arena_of_another_thread, 8) != NULL);
    allot_arena_destroy(arena_of_another_thread);
    allot_free_list_destroy(list_of_another_thread);
}

static void a_destroyed_one_is_reported(void)
{
    allot_arena *arena = allot_arena_create(&hardened);
    (void)allot_arena_alloc(arena, 100);
    allot_arena_destroy(arena);
    EXPECT(allot_arena_try_alloc(arena, 8) == NULL && allot_last_error()->kind == ALLOT_BAD_HANDLE);
    EXPECT(strcmp(allot_last_error()->name, "guarded") == 0);
    EXPECT(strstr(allot_last_error()->message, "arena 'guarded': used after it was destroyed") != NULL);
    EXPECT(allot_arena_try_strdup(arena, "text") == NULL);
    allot_free_list *list = allot_free_list_create(8, 8, &hardened);
    allot_free_list_free(list, allot_free_list_alloc(list));
    allot_free_list_destroy(list);
    allot_clear_error();
    EXPECT(allot_free_list_try_alloc(list) == NULL && allot_last_error()->kind == ALLOT_BAD_HANDLE);
    /* Among many that were destroyed after it. */
    for (int i = 0; i < 4000; i++)
        allot_arena_destroy(allot_arena_create(&hardened));
    allot_clear_error();
    EXPECT(allot_arena_try_alloc(arena, 8) == NULL && allot_last_error()->kind == ALLOT_BAD_HANDLE);
    for (int i = 0; i < 10000; i++)
        allot_arena_destroy(allot_arena_create(&hardened));
}

static void what_leads_to_none_is_not_followed(void)
{
    allot_set_hardened(true);
    allot_arena *arena = allot_arena_create(NULL);
    allot_free_list *list = allot_free_list_create(8, 8, NULL);
    allot_budget *budget = allot_budget_create(1 << 20);
    allot_source *source = allot_source_malloc();
    allot_arena *with = allot_arena_create(&(allot_options){.budget = budget, .source = source});
    EXPECT(allot_arena_try_alloc_slowly(with, 100, 8) != NULL);
    static uint64_t mine[64];
    allot_arena *foreign[] = {(allot_arena *)(uintptr_t)mine, (allot_arena *)(uintptr_t)list, (allot_arena *)(uintptr_t)16,
                              (allot_arena *)(uintptr_t)(UINTPTR_MAX - 15), (allot_arena *)((uintptr_t)arena + 8)};
    for (size_t i = 0; i < sizeof(foreign) / sizeof(*foreign); i++) {
        allot_clear_error();
        EXPECT(allot_arena_try_alloc_slowly(foreign[i], 8, 8) == NULL);
        EXPECT(allot_last_error()->kind == ALLOT_BAD_HANDLE);
    }
    EXPECT(allot_arena_try_create(&(allot_options){.budget = (allot_budget *)(uintptr_t)source}) == NULL);
    EXPECT(allot_last_error()->kind == ALLOT_BAD_HANDLE && strcmp(allot_last_error()->allocator, "budget") == 0);
    allot_budget_destroy(budget);
    allot_source_destroy(source);
    allot_clear_error();
    EXPECT(allot_budget_try_child(budget, 1) == NULL && allot_last_error()->kind == ALLOT_BAD_HANDLE);
    EXPECT(allot_arena_try_create(&(allot_options){.source = source}) == NULL);
    EXPECT(allot_last_error()->kind == ALLOT_BAD_HANDLE && strcmp(allot_last_error()->allocator, "source") == 0);
    /* All of this was right all along. */
    EXPECT(allot_arena_try_alloc(arena, 8) != NULL && allot_arena_try_alloc(with, 8) != NULL);
    EXPECT(allot_free_list_try_alloc(list) != NULL);
    for (int i = 0; i < 20000; i++)
        allot_arena_destroy(allot_arena_create(NULL));
    allot_arena_destroy(arena);
    allot_arena_destroy(with);
    allot_free_list_destroy(list);
    allot_set_hardened(false);
}

static void those_of_before_are_good(void)
{
    allot_arena *before = allot_arena_create(NULL);
    allot_set_hardened(true);
    EXPECT(allot_arena_try_alloc_slowly(before, 8, 8) != NULL);
    allot_arena_destroy(before);
    allot_set_hardened(false);
}

static bool names(const char *what)
{
    const allot_error *error = allot_last_error();
    bool named = error->kind == ALLOT_BAD_HANDLE && strstr(error->message, what) != NULL
                 && strstr(error->message, "is NULL") != NULL;
    allot_clear_error();
    return named;
}

static const void *copies_null(allot_sealer *sealer, void *unused)
{
    (void)unused;
    EXPECT(allot_sealer_try_strdup(sealer, NULL) == NULL && names("text"));
    EXPECT(allot_sealer_try_memdup(sealer, NULL, 4) == NULL && names("memory to copy"));
    EXPECT(allot_sealer_try_memdup(sealer, NULL, 0) != NULL);
    return allot_sealer_try_strdup(sealer, "text");
}

static void texts_and_arrays_that_are_null_are_named(void)
{
    for (size_t at = 0; at < 2; at++) {
        const allot_options *options = at == 0 ? NULL : &hardened;
        allot_arena *arena = allot_arena_create(options);
        EXPECT(allot_arena_try_strdup(arena, NULL) == NULL && names("text"));
        EXPECT(allot_arena_try_strndup(arena, NULL, 3) == NULL && names("text"));
        EXPECT(allot_arena_try_memdup(arena, NULL, 3) == NULL && names("memory to copy"));
        /* Nothing is read. */
        EXPECT(*allot_arena_try_strndup(arena, NULL, 0) == 0 && allot_arena_try_memdup(arena, NULL, 0) != NULL);
        allot_arena_destroy(arena);
        allot_slab *slab = allot_slab_create(16, 8, options);
        EXPECT(!allot_slab_try_alloc_many(slab, NULL, 3) && names("array of slots"));
        EXPECT(allot_slab_try_alloc_many(slab, NULL, 0));
        allot_slab_free_many(slab, NULL, 0);
        allot_slab_destroy(slab);
    }
    allot_sealed *sealed = allot_sealed_try_create(NULL, copies_null, NULL);
    EXPECT(sealed != NULL);
    allot_sealed_destroy(sealed);
}

static void work(void)
{
    /* Nothing was created yet, so every handle is known here. */
    what_leads_to_none_is_not_followed();
    another_thread_is_refused_until_it_adopts();
    a_destroyed_one_is_reported();
    those_of_before_are_good();
    texts_and_arrays_that_are_null_are_named();
}

static void alloc_after_destroy(void)
{
    allot_arena *arena = allot_arena_create(&hardened);
    allot_arena_destroy(arena);
    (void)allot_arena_alloc(arena, 8);
}

static void destroy_twice(void)
{
    allot_arena *arena = allot_arena_create(&hardened);
    allot_arena_destroy(arena);
    allot_arena_destroy(arena);
}

static void list_destroy_twice(void)
{
    allot_free_list *list = allot_free_list_create(8, 8, &hardened);
    allot_free_list_destroy(list);
    allot_free_list_destroy(list);
}

static void free_after_destroy(void)
{
    allot_free_list *list = allot_free_list_create(8, 8, &hardened);
    void *object = allot_free_list_alloc(list);
    allot_free_list_destroy(list);
    allot_free_list_free(list, object);
}

static void *reset_it(void *unused)
{
    (void)unused;
    allot_arena_reset(arena_of_another_thread);
    return NULL;
}

static void reset_by_another_thread(void)
{
    arena_of_another_thread = allot_arena_create(&hardened);
    on_another_thread(reset_it);
}

static void *destroy_it(void *unused)
{
    (void)unused;
    allot_free_list_destroy(list_of_another_thread);
    return NULL;
}

static void destroy_by_another_thread(void)
{
    list_of_another_thread = allot_free_list_create(8, 8, &hardened);
    on_another_thread(destroy_it);
}

static void list_as_arena(void)
{
    allot_set_hardened(true);
    allot_arena_reset((allot_arena *)(uintptr_t)allot_free_list_create(8, 8, NULL));
}

static void arena_double_free(void)
{
    allot_arena *arena = allot_arena_create(&hardened);
    void *object = allot_arena_alloc(arena, 32);
    (void)allot_arena_alloc(arena, 32);
    allot_arena_free_sized(arena, object, 32, 16);
    allot_arena_free_sized(arena, object, 32, 16);
}

static void arena_wrong_size(void)
{
    allot_arena *arena = allot_arena_create(&hardened);
    allot_arena_free_sized(arena, allot_arena_alloc(arena, 32), 33, 16);
}

static void arena_foreign(void)
{
    static uint64_t object[4];
    allot_arena_free_sized(allot_arena_create(&hardened), object, 32, 16);
}

static void arena_overrun(void)
{
    allot_arena *arena = allot_arena_create(&hardened);
    volatile unsigned char *object = allot_arena_alloc(arena, 30);
    object[30] = 1;
    allot_arena_destroy(arena);
}

static void list_double_free(void)
{
    allot_free_list *list = allot_free_list_create(32, 8, &hardened);
    void *object = allot_free_list_alloc(list);
    allot_free_list_free(list, object);
    allot_free_list_free(list, object);
}

static void list_write_after_free(void)
{
    allot_free_list *list = allot_free_list_create(32, 8, &hardened);
    volatile unsigned char *object = allot_free_list_alloc(list);
    allot_free_list_free(list, (void *)(uintptr_t)object);
    object[3] = 1;
    allot_free_list_destroy(list);
}

static void list_leaves_live_objects(void)
{
    allot_free_list *list = allot_free_list_create(32, 8, &(allot_options){.name = "nodes", .report_live = true});
    (void)allot_free_list_alloc(list);
    allot_free_list_destroy(list);
    abort();
}

static void rewind_of_another_arena(void)
{
    allot_arena_position mark = allot_arena_mark(allot_arena_create(NULL));
    allot_arena_rewind(allot_arena_create(NULL), &mark);
}

/* malloc gives the memory of the one to the other. */
static void rewind_of_a_destroyed_arena(void)
{
    allot_arena *arena = allot_arena_create(NULL);
    (void)allot_arena_alloc(arena, 100);
    allot_arena_position mark = allot_arena_mark(arena);
    allot_arena_destroy(arena);
    arena = allot_arena_create(NULL);
    (void)allot_arena_alloc(arena, 100);
    allot_arena_rewind(arena, &mark);
}

static void rewind_after_reset(void)
{
    allot_arena *arena = allot_arena_create(NULL);
    allot_arena_position mark = allot_arena_mark(arena);
    allot_arena_reset(arena);
    allot_arena_rewind(arena, &mark);
}

static void rewind_of_a_passed_mark(void)
{
    allot_arena *arena = allot_arena_create(&hardened);
    allot_arena_position older = allot_arena_mark(arena);
    allot_arena_position newer = allot_arena_mark(arena);
    allot_arena_rewind(arena, &older);
    allot_arena_rewind(arena, &newer);
}

static void rewind_to_null(void)
{
    allot_arena_rewind(allot_arena_create(NULL), NULL);
}

static void copy_of_null(void)
{
    (void)allot_arena_strdup(allot_arena_create(&hardened), NULL);
}

static void array_of_null(void)
{
    allot_slab_free_many(allot_slab_create(16, 8, &hardened), NULL, 2);
}

static void free_with_a_bad_alignment(void)
{
    allot_arena *arena = allot_arena_create(NULL);
    allot_arena_free_sized(arena, allot_arena_alloc(arena, 8), 8, 3);
}

static const struct deadly cases[] = {
    {"alloc-after-destroy", "allotment: arena 'guarded': used after it was destroyed", alloc_after_destroy},
    {"destroy-twice", "allotment: arena 'guarded': used after it was destroyed", destroy_twice},
    {"list-destroy-twice", "allotment: free list 'guarded': used after it was destroyed", list_destroy_twice},
    {"free-after-destroy", "allotment: free list 'guarded': used after it was destroyed", free_after_destroy},
    {"reset-by-another-thread", "allotment: arena 'guarded': used by a thread that is not its owner", reset_by_another_thread},
    {"destroy-by-another-thread", "allotment: free list 'guarded': used by a thread", destroy_by_another_thread},
    {"list-as-arena", "allotment: arena: the pointer is not a live handle", list_as_arena},
    {"arena-double-free", "arena 'guarded': double free: 32 bytes", arena_double_free},
    {"arena-wrong-size", "arena 'guarded': wrong size at free, allocated with 32", arena_wrong_size},
    {"arena-foreign", "arena 'guarded': foreign pointer", arena_foreign},
    {"arena-overrun", "arena 'guarded': overrun", arena_overrun},
    {"list-double-free", "free list 'guarded': double free", list_double_free},
    {"list-write-after-free", "free list 'guarded': write after free", list_write_after_free},
    {"list-live", "nodes", list_leaves_live_objects},
    {"rewind-another", "a position that this arena did not return", rewind_of_another_arena},
    {"rewind-destroyed", "a position that this arena did not return", rewind_of_a_destroyed_arena},
    {"rewind-after-reset", "a position from before its last reset", rewind_after_reset},
    {"rewind-passed", "arena 'guarded': rewound to a position that an earlier rewind made invalid", rewind_of_a_passed_mark},
    {"rewind-null", "the position to rewind to is NULL", rewind_to_null},
    {"copy-null", "allotment: arena 'guarded': the text is NULL", copy_of_null},
    {"array-null", "allotment: slab 'guarded': the array of slots is NULL", array_of_null},
    {"free-alignment", "an alignment of 3 is not a power of two", free_with_a_bad_alignment},
};

int main(int count, char **arguments)
{
    return main_of(count, arguments, cases, sizeof(cases) / sizeof(*cases), work);
}
