/* Every function of the older allocators is a symbol. This unit takes their addresses, and calls units that only
 * declare them. */
#ifdef DECLARED_BEFORE
#include <stddef.h>
#include "declares_too.inc"
#endif
#include <allotment_netdata.h>
#ifndef DECLARED_BEFORE
#include "declares_too.inc"
#endif

#undef NDEBUG
#include <assert.h>

#ifdef __cplusplus
extern "C" {
#endif
void *declared_aral(struct aral *ar);
void *declared_arena(void *owa);
void declared_list(struct free_list *list);
#ifdef __cplusplus
}
#endif

int main(void)
{
    void *(*volatile mallocz)(ARAL *) = aral_mallocz;
    void (*volatile freez)(ARAL *, void *) = aral_freez;
    void *(*volatile of_arena)(ONEWAYALLOC *, size_t) = onewayalloc_mallocz;
    char *(*volatile strdupz)(ONEWAYALLOC *, const char *) = onewayalloc_strdupz;

    struct aral_statistics statistics = {};
    ARAL *ar = aral_create("declared", 64, 0, 0, &statistics, NULL, NULL, true, false, false);
    for (int round = 0; round < 500; round++) {
        void *one = declared_aral(ar);
        freez(ar, mallocz(ar));
        aral_freez(ar, one);
    }
    assert(aral_used_bytes(ar) == 0 && aral_used_bytes_from_stats(&statistics) == 0);
    aral_destroy(ar);

    ONEWAYALLOC *owa = onewayalloc_create(0);
    assert(declared_arena(owa) != of_arena(owa, 100) && strcmp(strdupz(owa, "name"), "name") == 0);
    onewayalloc_destroy(owa);

    struct free_list list;
    list_create(&list, 64, 0);
    declared_list(&list);
    list_free(&list, list_malloc(&list));
    list_destroy(&list);
    return 0;
}
