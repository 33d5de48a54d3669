/* Budgets: they are never exceeded, they nest, and they are unused again when everything in them was freed. */
#include <allotment.h>

#include <stdint.h>

#include "expect.h"

static void a_cap_refuses_what_does_not_fit_and_stays_usable(void)
{
    allot_budget *budget = allot_budget_create(1 << 20);
    EXPECT(allot_budget_limit(budget) == 1 << 20 && allot_budget_used(budget) == 0);
    allot_arena *arena = allot_arena_create(&(allot_options){.name = "request", .budget = budget});
    size_t got = 0;
    while (allot_arena_try_alloc(arena, 10000) != NULL) {
        got += 10000;
        EXPECT(allot_budget_used(budget) <= 1 << 20);
        EXPECT(allot_budget_used(budget) == allot_arena_statistics(arena).held_bytes);
    }
    EXPECT(got > 200000);
    const allot_error *error = allot_last_error();
    EXPECT(error->kind == ALLOT_BUDGET_EXCEEDED && strcmp(error->name, "request") == 0 && error->requested > 0);
    EXPECT(strstr(error->message, "raise its limit") != NULL);
    EXPECT(allot_arena_statistics(arena).live_bytes == got);
    allot_arena_reset(arena);
    EXPECT(allot_arena_try_alloc(arena, 10000) != NULL);
    allot_arena_destroy(arena);
    EXPECT(allot_budget_used(budget) == 0);
    allot_budget_destroy(budget);
}

static void a_childs_bytes_are_its_parents_too(void)
{
    allot_budget *server = allot_budget_try_create(1 << 20);
    allot_budget *request = allot_budget_child(server, SIZE_MAX);
    allot_budget *small = allot_budget_try_child(server, 1 << 16);
    EXPECT(allot_budget_limit(request) == SIZE_MAX);
    allot_free_list *list = allot_free_list_create(100, 4, &(allot_options){.budget = request});
    allot_arena *arena = allot_arena_create(&(allot_options){.budget = small});
    EXPECT(allot_free_list_alloc(list) != NULL && allot_arena_alloc(arena, 100) != NULL);
    EXPECT(allot_budget_used(server) == allot_budget_used(request) + allot_budget_used(small));
    EXPECT(allot_arena_try_alloc(arena, 1 << 17) == NULL && allot_last_error()->kind == ALLOT_BUDGET_EXCEEDED);
    EXPECT(allot_budget_used(server) == allot_budget_used(request) + allot_budget_used(small));
    /* The parent's limit holds for a child that has none. */
    size_t count = 0;
    while (allot_free_list_try_alloc(list) != NULL)
        count++;
    EXPECT(allot_last_error()->kind == ALLOT_BUDGET_EXCEEDED && count > 1000);
    EXPECT(allot_budget_used(server) <= 1 << 20);
    /* An allocator keeps its budget, and the parents of the budget. */
    allot_budget_destroy(request);
    allot_budget_destroy(small);
    allot_free_list_destroy(list);
    allot_arena_destroy(arena);
    EXPECT(allot_budget_used(server) == 0);
    allot_budget_destroy(server);
}

static const void *a_megabyte(allot_sealer *sealer, void *context)
{
    (void)context;
    return allot_sealer_try_alloc(sealer, 1 << 20, 8);
}

/* A maximum is a child of the budget: both limits hold. */
static void every_allocator_has_a_maximum(void)
{
    allot_budget *budget = allot_budget_create(1 << 24);
    const allot_options options = {.budget = budget, .maximum = 1 << 18};
    allot_arena *arena = allot_arena_create(&options);
    EXPECT(allot_arena_try_alloc(arena, 1 << 20) == NULL && allot_last_error()->kind == ALLOT_BUDGET_EXCEEDED);
    allot_free_list *list = allot_free_list_create(1 << 20, 8, &options);
    EXPECT(allot_free_list_try_alloc(list) == NULL && allot_last_error()->kind == ALLOT_BUDGET_EXCEEDED);
    allot_slab *slab = allot_slab_create(1 << 20, 8, &options);
    EXPECT(allot_slab_try_alloc(slab) == NULL && allot_last_error()->kind == ALLOT_BUDGET_EXCEEDED);
    allot_reap *reap = allot_reap_create(&options);
    EXPECT(allot_reap_try_alloc(reap, 1 << 20, 8) == NULL && allot_last_error()->kind == ALLOT_BUDGET_EXCEEDED);
    allot_pool *pool = allot_pool_create(&options);
    EXPECT(allot_pool_try_alloc(pool, 1 << 20, 8) == NULL && allot_last_error()->kind == ALLOT_BUDGET_EXCEEDED);
    EXPECT(allot_sealed_try_create(&options, a_megabyte, NULL) == NULL);
    EXPECT(allot_last_error()->kind == ALLOT_BUDGET_EXCEEDED);
    EXPECT(allot_arena_try_alloc(arena, 1 << 16) != NULL && allot_budget_used(budget) >= 1 << 16);
    allot_arena_destroy(arena);
    allot_free_list_destroy(list);
    allot_slab_destroy(slab);
    allot_reap_destroy(reap);
    allot_pool_destroy(pool);
    EXPECT(allot_budget_used(budget) == 0);
    allot_budget_destroy(budget);
}

static void a_budget_of_nothing_refuses_everything(void)
{
    allot_budget *none = allot_budget_create(0);
    EXPECT(allot_arena_try_create(&(allot_options){.budget = none, .hint = 1}) == NULL);
    EXPECT(allot_last_error()->kind == ALLOT_BUDGET_EXCEEDED);
    allot_free_list *list = allot_free_list_create(8, 8, &(allot_options){.budget = none});
    EXPECT(allot_free_list_try_alloc(list) == NULL && allot_last_error()->kind == ALLOT_BUDGET_EXCEEDED);
    allot_free_list_destroy(list);
    allot_budget_destroy(none);
}

/* As in every field of the options, zero is the default. */
static void a_maximum_of_zero_is_no_limit(void)
{
    allot_pool *pool = allot_pool_create(&(allot_options){.maximum = 0});
    EXPECT(allot_pool_try_alloc(pool, 1 << 24, 8) != NULL);
    allot_pool_destroy(pool);
}

static void past_the_budget(void)
{
    allot_budget *budget = allot_budget_create(5000);
    (void)allot_arena_alloc(allot_arena_create(&(allot_options){.budget = budget, .name = "capped"}), 6000);
}

static void of_null(void)
{
    (void)allot_budget_child(NULL, 1);
}

static const struct deadly cases[] = {
    {"past-the-budget", "allotment: arena 'capped': ", past_the_budget},
    {"child-of-null", "allotment: budget: the handle is NULL", of_null},
};

static void work(void)
{
    a_cap_refuses_what_does_not_fit_and_stays_usable();
    a_childs_bytes_are_its_parents_too();
    every_allocator_has_a_maximum();
    a_budget_of_nothing_refuses_everything();
    a_maximum_of_zero_is_no_limit();
}

int main(int count, char **arguments)
{
    return main_of(count, arguments, cases, sizeof(cases) / sizeof(*cases), work);
}
