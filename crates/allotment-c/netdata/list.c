/* struct free_list: list.h says what each function does. */
#include "internal.h"

ANCESTOR void list_create(struct free_list *list, size_t object_size, size_t object_num)
{
    if (list != NULL) {
        list->allot_list = NULL;
        /* A size that is too large to round up is refused at the first allocation. */
        list->object_size = object_size > SIZE_MAX - 7 ? object_size : (object_size + 7) & ~(size_t)7;
        list->object_num = object_num;
    }
}

ANCESTOR void list_destroy(struct free_list *ldel)
{
    allot_free_list_destroy(ldel->allot_list);
    ldel->allot_list = NULL;
}

EXPORTED void *allot_netdata_list_begins(struct free_list *list)
{
    allot_options options;
    memset(&options, 0, sizeof options);
    options.objects_per_chunk = list->object_num;
    list->allot_list = allot_free_list_try_create(list->object_size, ALLOT_NETDATA_ALIGN(list->object_size), &options);
    return list->allot_list == NULL ? NULL : allot_free_list_try_alloc(list->allot_list);
}
