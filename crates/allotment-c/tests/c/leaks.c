/* A leak checker finds what objects of any allocator refer to, and what a destroyed pool keeps for the next.
 * It runs at the end of a program that was built with AddressSanitizer. */
#include <allotment.h>

#include <stdlib.h>

#include "stamped.h"

/* Nothing else refers to these blocks. */
#define HOLD(place) (*(void **)(place) = malloc(100))

static allot_arena *volatile arena;
static allot_free_list *volatile list;
static allot_slab *volatile slab;
static allot_reap *volatile reap;
static allot_pool *volatile pool;
static allot_sealed *volatile sealed;

static const void *build(allot_sealer *sealer, void *context)
{
    void **root = (void **)allot_sealer_alloc(sealer, sizeof(void *), sizeof(void *));
    *root = malloc(*(size_t *)context);
    return root;
}

static __attribute__((noinline)) void hold(void)
{
    arena = allot_arena_create(NULL);
    list = allot_free_list_create(64, 8, NULL);
    slab = allot_slab_create(64, 8, NULL);
    reap = allot_reap_create(NULL);
    pool = allot_pool_create(NULL);
    for (int i = 0; i < 100; i++) {
        HOLD(allot_arena_alloc(arena, 64));
        HOLD(allot_free_list_alloc(list));
        HOLD(allot_slab_alloc(slab));
        HOLD(allot_reap_alloc(reap, 64, 8));
        HOLD(allot_reap_alloc(reap, 100000, 8));
        HOLD(allot_pool_alloc(pool, 64, 8));
        HOLD(allot_pool_alloc(pool, 100000, 8));
    }
    size_t size = 100;
    sealed = allot_sealed_create(NULL, build, &size);
}

static __attribute__((noinline)) void end_some(void)
{
    /* Their chunks go, some of them to the next of their kind. */
    for (int i = 0; i < 10; i++) {
        allot_arena *other_arena = allot_arena_create(&(allot_options){.hint = 3 << 20});
        allot_pool *other_pool = allot_pool_create(&(allot_options){.name = "ended", .maximum = 1 << 24});
        allot_reap *other_reap = allot_reap_create(&(allot_options){.release = {ALLOT_AT_ONCE, 0}});
        void *block = allot_pool_alloc(other_pool, 200000, 8);
        allot_reap_alloc(other_reap, 5 << 20, 8);
        allot_pool_free_sized(other_pool, block, 200000, 8);
        allot_pool_destroy(other_pool);
        allot_arena_destroy(other_arena);
        allot_reap_destroy(other_reap);
    }
    allot_recycler_trim();
}

int main(void)
{
    hold();
    end_some();
    return 0;
}
