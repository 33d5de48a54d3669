/* Pools, reaps, blocks that store their size, and sealed objects: misuse is named and stopped. */
#include <allotment.h>

#include <pthread.h>

#include "expect.h"

static const allot_options hardened = {.name = "guarded", .hardened = true};
static const allot_options plain = {.name = "plain"};

static void on_another_thread(void *(*run)(void *), void *argument)
{
    pthread_t thread;
    EXPECT(pthread_create(&thread, NULL, run, argument) == 0);
    EXPECT(pthread_join(thread, NULL) == 0);
}

/* ---- pools ---- */

static void left_in_the_wrong_order(void)
{
    allot_entered outer = allot_pool_enter(allot_pool_create(&plain));
    (void)allot_pool_enter(allot_pool_create(NULL));
    allot_pool_leave(outer);
}

static void left_with_the_first_of_two(void)
{
    allot_pool *pool = allot_pool_create(&plain);
    allot_entered outer = allot_pool_enter(pool);
    (void)allot_pool_enter(pool);
    allot_pool_leave(outer);
}

/* What the thread was in when it entered the first time is gone when it leaves the second time. */
static void left_with_what_is_over(void)
{
    allot_pool *pool = allot_pool_create(&plain);
    allot_pool *gone = allot_pool_create(NULL);
    allot_entered in_gone = allot_pool_enter(gone);
    allot_entered over = allot_pool_enter(pool);
    allot_pool_leave(over);
    allot_pool_leave(in_gone);
    allot_pool_destroy(gone);
    (void)allot_pool_enter(pool);
    allot_pool_leave(over);
}

static void left_twice(void)
{
    allot_entered entered = allot_pool_enter(allot_pool_create(&plain));
    allot_pool_leave(entered);
    allot_pool_leave(entered);
}

static void destroyed_while_entered(void)
{
    allot_pool *pool = allot_pool_create(&plain);
    (void)allot_pool_enter(pool);
    allot_pool_destroy(pool);
}

static void *enter(void *pool)
{
    (void)allot_pool_enter((allot_pool *)pool);
    return NULL;
}

static void entered_by_another_thread(void)
{
    on_another_thread(enter, allot_pool_create(&plain));
}

static void *destroy(void *pool)
{
    allot_pool_destroy((allot_pool *)pool);
    return NULL;
}

static void destroyed_by_another_thread(void)
{
    on_another_thread(destroy, allot_pool_create(&plain));
}

static void *take(void *pool)
{
    return allot_pool_alloc((allot_pool *)pool, 8, 8);
}

static void used_by_another_thread(void)
{
    on_another_thread(take, allot_pool_create(&hardened));
}

static void used_after_destroy(void)
{
    allot_pool *pool = allot_pool_create(&hardened);
    (void)allot_pool_alloc(pool, 8, 8);
    allot_pool_destroy(pool);
    (void)allot_pool_alloc(pool, 8, 8);
}

static void freed_with_the_wrong_size(void)
{
    allot_pool *pool = allot_pool_create(&hardened);
    allot_pool_free_sized(pool, allot_pool_alloc(pool, 40, 8), 41, 8);
}

static void overrun(void)
{
    allot_pool *pool = allot_pool_create(&hardened);
    char *block = (char *)allot_pool_alloc(pool, 40, 8);
    block[40] = 1;
    allot_free_sized(block, 40, 8);
}

static void freed_with_a_bad_alignment(void)
{
    allot_pool *pool = allot_pool_create(&plain);
    allot_pool_free_sized(pool, allot_pool_alloc(pool, 40, 8), 40, 9);
}

static void no_pool_to_enter(void)
{
    (void)allot_pool_enter(NULL);
}

static void no_such_reference(void)
{
    allot_set_hardened(true);
    (void)allot_ref_alloc(0x1234567890ABCDu, 8, 8);
}

static void no_such_pool(void)
{
    static char nothing[256];
    allot_set_hardened(true);
    (void)allot_pool_malloc((allot_pool *)(void *)(nothing + 16), 8);
}

/* ---- blocks that know their size ---- */

static void block_freed_twice(void)
{
    char *block = (char *)allot_pool_malloc(allot_pool_create(&plain), 100);
    allot_free(block);
    allot_free(block);
}

static void block_freed_twice_outside_of_pools(void)
{
    char *block = (char *)allot_malloc(100);
    allot_free(block);
    allot_free(block);
}

static void block_freed_after_it_moved(void)
{
    allot_pool *pool = allot_pool_create(&plain);
    char *block = (char *)allot_pool_malloc(pool, 100);
    (void)allot_pool_malloc(pool, 100);
    (void)allot_realloc(block, 10000);
    allot_free(block);
}

static void block_of_mallocs(void)
{
    char *block = (char *)malloc(100);
    memset(block, 1, 100);
    allot_free(block + 32);
}

static void block_without_a_size(void)
{
    allot_pool *pool = allot_pool_create(&plain);
    (void)allot_pool_alloc(pool, 40, 8);
    allot_free(allot_pool_alloc(pool, 40, 8));
}

static void block_with_an_overwritten_size(void)
{
    allot_pool *pool = allot_pool_create(&plain);
    char *blocks[2];
    for (int i = 0; i < 2; i++)
        blocks[i] = (char *)allot_pool_malloc(pool, 32);
    char *first = blocks[0] < blocks[1] ? blocks[0] : blocks[1];
    memset(first, 'x', 34);
    allot_free(blocks[0]);
    allot_free(blocks[1]);
}

static void aligned_block_freed_twice(void)
{
    char *block = (char *)allot_aligned_alloc(256, 100);
    allot_free(block);
    allot_free(block);
}

static void block_of_a_reap(void)
{
    allot_free(allot_reap_malloc(allot_reap_create(&plain), 100));
}

static void size_of_no_block(void)
{
    static char nothing[256];
    (void)allot_usable_size(nothing + 64);
}

static void realloc_of_no_block(void)
{
    static char nothing[256];
    (void)allot_realloc(nothing + 64, 10);
}

static void too_large(void)
{
    (void)allot_malloc(SIZE_MAX - 100);
}

/* ---- reaps ---- */

static void block_of_another_reap(void)
{
    allot_reap_free(allot_reap_create(&plain), allot_reap_malloc(allot_reap_create(NULL), 100));
}

static void block_of_a_reap_freed_twice(void)
{
    allot_reap *reap = allot_reap_create(&plain);
    char *block = (char *)allot_reap_malloc(reap, 100);
    allot_reap_free(reap, block);
    allot_reap_free(reap, block);
}

static void block_from_before_a_reset(void)
{
    allot_reap *reap = allot_reap_create(&(allot_options){.name = "plain", .release = {ALLOT_KEEP, 1 << 20}});
    char *block = (char *)allot_reap_malloc(reap, 100);
    allot_reap_reset(reap);
    allot_reap_free(reap, block);
}

static void pools_block_freed_by_a_reap(void)
{
    allot_reap_free(allot_reap_create(&plain), allot_pool_malloc(allot_pool_create(NULL), 100));
}

static void *take_from_a_reap(void *reap)
{
    return allot_reap_alloc((allot_reap *)reap, 8, 8);
}

static void reap_used_by_another_thread(void)
{
    on_another_thread(take_from_a_reap, allot_reap_create(&hardened));
}

static void reap_used_after_destroy(void)
{
    allot_reap *reap = allot_reap_create(&hardened);
    (void)allot_reap_alloc(reap, 8, 8);
    allot_reap_destroy(reap);
    allot_reap_reset(reap);
}

static void freed_twice_in_a_reap(void)
{
    allot_reap *reap = allot_reap_create(&hardened);
    void *block = allot_reap_alloc(reap, 100, 8);
    allot_reap_free_sized(reap, block, 100, 8);
    allot_reap_free_sized(reap, block, 100, 8);
}

/* ---- sealed objects ---- */

static const void *give_up(allot_sealer *sealer, void *context)
{
    (void)sealer;
    (void)context;
    return NULL;
}

static void initialiser_that_gives_up(void)
{
    (void)allot_sealed_create(&plain, give_up, NULL);
}

static const void *take_too_much(allot_sealer *sealer, void *context)
{
    (void)context;
    return allot_sealer_alloc(sealer, 1 << 20, 8);
}

static void initialiser_that_takes_too_much(void)
{
    (void)allot_sealed_create(&(allot_options){.name = "plain", .budget = allot_budget_create(100000)}, take_too_much, NULL);
}

static const void *keep_the_sealer(allot_sealer *sealer, void *context)
{
    *(allot_sealer **)context = sealer;
    return allot_sealer_strdup(sealer, "kept");
}

static void sealer_used_after_its_initialiser(void)
{
    allot_sealer *sealer;
    allot_set_hardened(true);
    (void)allot_sealed_create(&plain, keep_the_sealer, &sealer);
    (void)allot_sealer_alloc(sealer, 8, 8);
}

static void plain_sealer_used_after_its_initialiser(void)
{
    allot_sealer *sealer;
    allot_sealed_destroy(allot_sealed_create(&plain, keep_the_sealer, &sealer));
    (void)allot_sealer_alloc(sealer, 8, 8);
}

static void sealed_used_after_destroy(void)
{
    allot_sealer *sealer;
    allot_set_hardened(true);
    allot_sealed *sealed = allot_sealed_create(&plain, keep_the_sealer, &sealer);
    allot_sealed_destroy(sealed);
    (void)allot_sealed_get(sealed);
}

static void sealed_used_after_leak(void)
{
    allot_sealer *sealer;
    allot_set_hardened(true);
    allot_sealed *sealed = allot_sealed_create(&plain, keep_the_sealer, &sealer);
    (void)allot_sealed_leak(sealed);
    allot_sealed_destroy(sealed);
}

static const struct deadly cases[] = {
    {"left-in-the-wrong-order", "pool 'plain': left before a pool that was entered after it", left_in_the_wrong_order},
    {"left-with-the-first-of-two", "pool 'plain': left with the result of an earlier", left_with_the_first_of_two},
    {"left-with-what-is-over", "pool 'plain': left with the result of an earlier", left_with_what_is_over},
    {"left-twice", "pool 'plain': left more often than it was entered", left_twice},
    {"destroyed-while-entered", "pool 'plain': destroyed while its thread is in it", destroyed_while_entered},
    {"entered-by-another-thread", "pool: used by a thread that is not its owner", entered_by_another_thread},
    {"destroyed-by-another-thread", "pool: used by a thread that is not its owner", destroyed_by_another_thread},
    {"used-by-another-thread", "pool 'guarded': used by a thread that is not its owner", used_by_another_thread},
    {"used-after-destroy", "pool 'guarded': used after it was destroyed", used_after_destroy},
    {"freed-with-the-wrong-size", "pool 'guarded': wrong size at free, allocated with 40 bytes", freed_with_the_wrong_size},
    {"overrun", "pool 'guarded': overrun", overrun},
    {"freed-with-a-bad-alignment", "pool 'plain': an alignment of 9", freed_with_a_bad_alignment},
    {"no-pool-to-enter", "pool: the handle is NULL", no_pool_to_enter},
    {"no-such-reference", "pool: the reference is not that of a pool", no_such_reference},
    {"no-such-pool", "pool: the pointer is not a live handle", no_such_pool},
    {"block-freed-twice", "is not a live block with a stored size", block_freed_twice},
    {"block-freed-twice-outside-of-pools", "is not a live block with a stored size", block_freed_twice_outside_of_pools},
    {"block-freed-after-it-moved", "is not a live block with a stored size", block_freed_after_it_moved},
    {"block-of-mallocs", "memory: 0x", block_of_mallocs},
    {"block-without-a-size", "is not a live block with a stored size", block_without_a_size},
    {"block-with-an-overwritten-size", "is not a live block with a stored size", block_with_an_overwritten_size},
    {"aligned-block-freed-twice", "is not a live block with a stored size", aligned_block_freed_twice},
    {"block-of-a-reap", "is not a live block with a stored size", block_of_a_reap},
    {"size-of-no-block", "is not a live block with a stored size", size_of_no_block},
    {"realloc-of-no-block", "is not a live block with a stored size", realloc_of_no_block},
    {"too-large", "memory: a size of ", too_large},
    {"block-of-another-reap", "reap 'plain': 0x", block_of_another_reap},
    {"block-of-a-reap-freed-twice", "reap 'plain': 0x", block_of_a_reap_freed_twice},
    {"block-from-before-a-reset", "reap 'plain': 0x", block_from_before_a_reset},
    {"pools-block-freed-by-a-reap", "reap 'plain': 0x", pools_block_freed_by_a_reap},
    {"reap-used-by-another-thread", "reap 'guarded': used by a thread that is not its owner", reap_used_by_another_thread},
    {"reap-used-after-destroy", "reap 'guarded': used after it was destroyed", reap_used_after_destroy},
    {"freed-twice-in-a-reap", "reap 'guarded': double free", freed_twice_in_a_reap},
    {"initialiser-that-gives-up", "sealed: its initialiser gave up", initialiser_that_gives_up},
    {"initialiser-that-takes-too-much", "sealer 'plain': ", initialiser_that_takes_too_much},
    {"sealer-used-after-its-initialiser", "sealer 'plain': used after it was destroyed", sealer_used_after_its_initialiser},
    {"plain-sealer-used-after-its-initialiser", "sealer 'plain': used after it was destroyed", plain_sealer_used_after_its_initialiser},
    {"sealed-used-after-destroy", "sealed 'plain': used after it was destroyed", sealed_used_after_destroy},
    {"sealed-used-after-leak", "used after it was destroyed", sealed_used_after_leak},
};

static void *try_elsewhere(void *pool)
{
    EXPECT(allot_pool_try_alloc((allot_pool *)pool, 8, 8) == NULL && allot_last_error()->kind == ALLOT_WRONG_THREAD);
    EXPECT(allot_pool_try_malloc((allot_pool *)pool, 8) == NULL && allot_last_error()->kind == ALLOT_WRONG_THREAD);
    return NULL;
}

static void try_calls_report(void)
{
    allot_pool *pool = allot_pool_create(&hardened);
    on_another_thread(try_elsewhere, pool);
    allot_pool_destroy(pool);
    EXPECT(allot_pool_try_alloc(pool, 8, 8) == NULL && allot_last_error()->kind == ALLOT_BAD_HANDLE);
    allot_reap *reap = allot_reap_create(&hardened);
    allot_reap_destroy(reap);
    EXPECT(allot_reap_try_alloc(reap, 8, 8) == NULL && allot_last_error()->kind == ALLOT_BAD_HANDLE);
    static char nothing[256];
    EXPECT(allot_try_realloc(nothing + 64, 10) == NULL && allot_last_error()->kind == ALLOT_BAD_HANDLE);
    allot_set_hardened(true);
    EXPECT(allot_ref_try_alloc(77, 8, 8) == NULL && allot_last_error()->kind == ALLOT_BAD_HANDLE);
    /* What is right goes on. */
    pool = allot_pool_create(NULL);
    allot_pool_ref ref = allot_pool_reference(pool);
    allot_free(allot_ref_malloc(ref, 100));
    allot_pool_destroy(pool);
    allot_free(allot_ref_malloc(ref, 100));
}

int main(int count, char **arguments)
{
    return main_of(count, arguments, cases, sizeof cases / sizeof *cases, try_calls_report);
}
