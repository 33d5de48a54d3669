/* ONEWAYALLOC: onewayalloc.h says what each function does. */
#include "internal.h"

#include <stdio.h>

/* A budget without a limit, which counts the bytes of all ONEWAYALLOCs. */
static allot_budget *arena_bytes;

static allot_budget *arena_budget(void)
{
    allot_budget *budget = __atomic_load_n(&arena_bytes, __ATOMIC_ACQUIRE);
    if (ALLOT_UNLIKELY(budget == NULL)) {
        allot_budget *made = allot_budget_create(SIZE_MAX);
        /* Release pairs with the acquiring loads: a thread that sees the budget sees what it is. */
        if (__atomic_compare_exchange_n(&arena_bytes, &budget, made, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
            budget = made;
        } else {
            allot_budget_destroy(made); /* another thread stored its budget first */
        }
    }
    return budget;
}

ANCESTOR ONEWAYALLOC *onewayalloc_create(size_t size_hint)
{
    allot_options options;
    memset(&options, 0, sizeof options);
    options.budget = arena_budget();
    options.hint = size_hint;
    return allot_arena_create(&options);
}

ANCESTOR void onewayalloc_destroy(ONEWAYALLOC *owa)
{
    allot_arena_destroy(allot_netdata_arena(owa));
}

ANCESTOR void onewayalloc_reset(ONEWAYALLOC *owa)
{
    allot_arena_reset(allot_netdata_arena(owa));
}

__attribute__((noreturn, cold)) static void product_fails(const char *context, size_t one, size_t other)
{
    char message[256];
    context = context != NULL ? context : "onewayalloc";
    snprintf(message, sizeof message, "%.100s: %zu times %zu bytes exceeds the address space; ask for less",
             context, one, other);
    netdata_fail(ALLOT_SIZE_OVERFLOW, SIZE_MAX, "arena", context, message);
}

static size_t product(size_t nmemb, size_t size, const char *context)
{
    size_t result;
    if (ALLOT_UNLIKELY(__builtin_mul_overflow(nmemb, size, &result))) {
        product_fails(context, nmemb, size);
    }
    return result;
}

ANCESTOR size_t onewayalloc_mul_or_fatal(size_t nmemb, size_t size, const char *context)
{
    return product(nmemb, size, context);
}

ANCESTOR size_t onewayalloc_mul3_or_fatal(size_t nmemb1, size_t nmemb2, size_t size, const char *context)
{
    return product(product(nmemb1, nmemb2, context), size, context);
}

ANCESTOR void *onewayalloc_doublesize(ONEWAYALLOC *owa, const void *src, size_t oldsize)
{
    size_t twice = product(2, oldsize, "onewayalloc_doublesize");
    allot_arena *arena = allot_netdata_arena(owa);
    if (src == NULL) {
        return allot_arena_alloc_aligned(arena, twice, ALLOT_NETDATA_ALIGN(twice));
    }
    return allot_arena_resize(arena, (void *)(uintptr_t)src, oldsize, twice, ALLOT_NETDATA_ALIGN(oldsize));
}

ANCESTOR size_t onewayalloc_allocated_memory(void)
{
    allot_budget *budget = __atomic_load_n(&arena_bytes, __ATOMIC_ACQUIRE);
    return budget == NULL ? 0 : allot_budget_used(budget);
}
