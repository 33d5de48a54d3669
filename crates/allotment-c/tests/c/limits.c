/* Limits other than budgets: at each, a call with try_ returns NULL and the allocator can still be
 * used; a call without it ends the process with one line. */
#include <allotment.h>

#include <errno.h>
#include <stdint.h>
#include <sys/resource.h>

#include "expect.h"

enum { FILE_LIMIT = 1 << 20, SIZE = 1000 };

/* Files of this process have at most FILE_LIMIT bytes. The signal SIGXFSZ keeps its default action,
 * which ends the process. */
static allot_source *limited_file(void)
{
    EXPECT(setrlimit(RLIMIT_FSIZE, &(struct rlimit){FILE_LIMIT, RLIM_INFINITY}) == 0);
    return allot_source_file_in("/tmp");
}

static void *of_arena(void *arena)
{
    return allot_arena_try_alloc(arena, SIZE);
}

static void *of_list(void *list)
{
    return allot_free_list_try_alloc(list);
}

static void *of_slab(void *slab)
{
    return allot_slab_try_alloc(slab);
}

static void *of_reap(void *reap)
{
    return allot_reap_try_alloc(reap, SIZE, 8);
}

/* What fill() has allocated. */
static void *objects[FILE_LIMIT / SIZE];

/* Allocates until the file is full. Returns the number of objects. */
static size_t fill(void *(*alloc)(void *), void *allocator)
{
    size_t count = 0;
    for (char *object; (object = alloc(allocator)) != NULL; count++) {
        EXPECT(count < FILE_LIMIT / SIZE);
        objects[count] = memset(object, 1, SIZE);
    }
    const allot_error *error = allot_last_error();
    EXPECT(error->kind == ALLOT_SYSTEM && error->system_error == EFBIG && error->requested > 0);
    EXPECT(strstr(error->message, "ulimit -f") != NULL);
    allot_clear_error();
    EXPECT(count > 0 && alloc(allocator) == NULL);
    return count;
}

static void a_full_file_returns_null_and_the_allocator_goes_on(void)
{
    allot_source *file = limited_file();
    const allot_options options = {.source = file, .name = "filed"};

    allot_arena *arena = allot_arena_create(&options);
    size_t count = fill(of_arena, arena);
    EXPECT(allot_arena_statistics(arena).live_objects == count);
    EXPECT(allot_arena_try_calloc(arena, FILE_LIMIT, 1) == NULL);
    allot_arena_reset(arena);
    EXPECT(fill(of_arena, arena) > 0);
    allot_arena_destroy(arena);

    allot_free_list *list = allot_free_list_create(SIZE, 8, &options);
    count = fill(of_list, list);
    EXPECT(allot_free_list_live(list) == count && allot_free_list_try_alloc_run(list, 1000) == NULL);
    allot_free_list_destroy(list);

    allot_slab *slab = allot_slab_create(SIZE, 8, &options);
    count = fill(of_slab, slab);
    EXPECT(allot_slab_statistics(slab).live_objects == count && !allot_slab_try_reserve(slab, 1000));
    EXPECT(allot_slab_statistics(slab).live_objects == count);
    allot_slab_free_many(slab, objects, count);
    allot_slab_destroy(slab);

    allot_reap *reap = allot_reap_create(&options);
    count = fill(of_reap, reap);
    EXPECT(allot_reap_statistics(reap).live_objects == count);
    allot_reap_reset(reap);
    EXPECT(allot_reap_try_alloc(reap, SIZE, 8) != NULL);
    allot_reap_destroy(reap);
    allot_source_destroy(file);
}

static void sources_and_pools_have_twins_for_a_lack_of_memory(void)
{
    allot_source *sources[] = {allot_source_try_mmap(), allot_source_try_small_pages(),
                               allot_source_try_huge_pages(), allot_source_try_malloc()};
    for (int i = 0; i < 4; i++) {
        allot_arena *arena = allot_arena_create(&(allot_options){.source = sources[i]});
        EXPECT(sources[i] != NULL && allot_arena_try_alloc(arena, SIZE) != NULL);
        allot_arena_destroy(arena);
        allot_source_destroy(sources[i]);
    }
    allot_pool *pool = allot_pool_create(NULL);
    allot_entered entered;
    EXPECT(allot_pool_try_enter(pool, &entered));
    EXPECT(entered.pool == pool);
    allot_pool_leave(entered);
    EXPECT(!allot_pool_try_enter(NULL, &entered) && allot_last_error()->kind == ALLOT_BAD_HANDLE);
    allot_pool_destroy(pool);
}

static void an_arena_over_a_full_file(void)
{
    allot_arena *arena = allot_arena_create(&(allot_options){.source = limited_file(), .name = "filed"});
    for (;;)
        (void)allot_arena_alloc(arena, SIZE);
}

static void a_slab_over_a_full_file(void)
{
    allot_slab *slab = allot_slab_create(SIZE, 8, &(allot_options){.source = limited_file(), .name = "filed"});
    for (;;)
        (void)allot_slab_alloc(slab);
}

static const struct deadly cases[] = {
    {"arena-full-file", "allotment: arena 'filed': the system refused", an_arena_over_a_full_file},
    {"slab-full-file", "allotment: slab 'filed': the system refused", a_slab_over_a_full_file},
};

static void work(void)
{
    a_full_file_returns_null_and_the_allocator_goes_on();
    sources_and_pools_have_twins_for_a_lack_of_memory();
}

int main(int count, char **arguments)
{
    return main_of(count, arguments, cases, sizeof(cases) / sizeof(*cases), work);
}
