/* The fixed size free list of an essay by its own names: a struct free_list has an allot_free_list. The names are
 * short: a program with others of the same name includes the rest of allotment_netdata.h without this.
 */
#ifndef ALLOTMENT_LIST_H
#define ALLOTMENT_LIST_H

#include "ancestors.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Objects of one size for one thread, in slabs of so many. The caller makes one and has list_create() fill it. Empty
 * slabs go back while it is in use. */
struct free_list {
    allot_free_list *allot_list; /* NULL until the first object */
    size_t object_size;          /* with padding */
    size_t object_num;
};

/* Takes no memory. `object_num` 0: as many as suit. Objects are aligned as elements of an ARAL. */
static inline void list_create(struct free_list *list, size_t object_size, size_t object_num)
{
    if (list != NULL) {
        list->allot_list = NULL;
        /* One that is too large for that is refused when the first object is wanted. */
        list->object_size = object_size > SIZE_MAX - 7 ? object_size : (object_size + 7) & ~(size_t)7;
        list->object_num = object_num;
    }
}

__attribute__((cold)) static inline bool allot_netdata_list_begins(struct free_list *list)
{
    allot_options options;
    memset(&options, 0, sizeof options);
    options.objects_per_slab = list->object_num;
    list->allot_list = allot_free_list_try_create(list->object_size, allot_netdata_align(list->object_size), &options);
    return list->allot_list != NULL;
}

/* NULL where there is no memory. Inline, as list_free(). */
static inline void *list_malloc(struct free_list *from)
{
    if (ALLOT_UNLIKELY(from->allot_list == NULL) && !allot_netdata_list_begins(from)) {
        return NULL;
    }
    return allot_free_list_try_alloc(from->allot_list);
}

/* An object of this list. NULL: nothing. */
static inline void list_free(struct free_list *to, void *freeptr)
{
    if (freeptr != NULL) {
        allot_free_list_free(to->allot_list, freeptr);
    }
}

/* Frees all of its memory, objects in use too. list_malloc() begins anew. */
static inline void list_destroy(struct free_list *ldel)
{
    allot_free_list_destroy(ldel->allot_list);
    ldel->allot_list = NULL;
}

#ifdef __cplusplus
}
#endif

#endif
