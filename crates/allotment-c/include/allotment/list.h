/* The fixed-size free list of an essay, under its own names: a struct free_list owns an
 * allot_free_list. The names are short. A program that already has such names can include the other
 * parts of allotment_netdata.h without this one.
 */
#ifndef ALLOTMENT_LIST_H
#define ALLOTMENT_LIST_H

#include "ancestors.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Objects of one size for one thread. The caller provides the structure and list_create() fills it.
 * Empty chunks are released while the list is in use. */
struct free_list {
    allot_free_list *allot_list; /* NULL until the first object */
    size_t object_size;          /* with padding */
    size_t object_num;
};

/* Takes no memory. `object_num` is the number of objects in each chunk; 0 lets the list choose.
 * Objects are aligned like elements of an ARAL: to 16 if the size is a multiple of 16 bytes,
 * otherwise to 8. */
static inline void list_create(struct free_list *list, size_t object_size, size_t object_num)
{
    if (list != NULL) {
        list->allot_list = NULL;
        /* A size that is too large to round up is refused at the first allocation. */
        list->object_size = object_size > SIZE_MAX - 7 ? object_size : (object_size + 7) & ~(size_t)7;
        list->object_num = object_num;
    }
}

__attribute__((cold)) static inline bool allot_netdata_list_begins(struct free_list *list)
{
    allot_options options;
    memset(&options, 0, sizeof options);
    options.objects_per_chunk = list->object_num;
    list->allot_list = allot_free_list_try_create(list->object_size, allot_netdata_align(list->object_size), &options);
    return list->allot_list != NULL;
}

/* Returns NULL if there is no memory. Inline, like list_free(). */
static inline void *list_malloc(struct free_list *from)
{
    if (ALLOT_UNLIKELY(from->allot_list == NULL) && !allot_netdata_list_begins(from)) {
        return NULL;
    }
    return allot_free_list_try_alloc(from->allot_list);
}

/* Frees an object of this list. NULL is ignored. */
static inline void list_free(struct free_list *to, void *freeptr)
{
    if (freeptr != NULL) {
        allot_free_list_free(to->allot_list, freeptr);
    }
}

/* Frees all memory of the list, live objects included. The list can be used again afterwards. */
static inline void list_destroy(struct free_list *ldel)
{
    allot_free_list_destroy(ldel->allot_list);
    ldel->allot_list = NULL;
}

#ifdef __cplusplus
}
#endif

#endif
