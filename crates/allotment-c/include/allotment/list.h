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
ALLOT_NETDATA_BEGIN

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
void list_create(struct free_list *list, size_t object_size, size_t object_num);

/* Frees all memory of the list, live objects included. The list can be used again afterwards. */
void list_destroy(struct free_list *ldel);

/* The first object of a list. Returns NULL if there is no memory. */
void *allot_netdata_list_begins(struct free_list *list);

/* ISO C forbids static names in inline definitions of functions with external linkage, because each
 * unit has its own. No unit emits the definitions below. GCC has no option for this one warning. */
#if !defined(__clang__) && !defined(__cplusplus)
#pragma GCC system_header
#endif

/* Returns NULL if there is no memory. Inline, like list_free(). */
ALLOT_NETDATA_INLINE void *list_malloc(struct free_list *from)
{
    if (ALLOT_UNLIKELY(from->allot_list == NULL)) {
        return allot_netdata_list_begins(from);
    }
    return allot_free_list_try_alloc(from->allot_list);
}

/* Frees an object of this list. NULL is ignored. */
ALLOT_NETDATA_INLINE void list_free(struct free_list *to, void *freeptr)
{
    if (freeptr != NULL) {
        allot_free_list_free(to->allot_list, freeptr);
    }
}

ALLOT_NETDATA_END
#ifdef __cplusplus
}
#endif

#endif
