/* What the ancestors' names, of allotment_netdata.h, have in common. Nothing here is for others to use.
 */
#ifndef ALLOTMENT_ANCESTORS_H
#define ALLOTMENT_ANCESTORS_H

#include "../allotment.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ALLOT_NETDATA_SHARED __attribute__((weak, visibility("default")))

/* As the functions without try_ fail: the handler, then the end. */
__attribute__((noreturn, cold)) static inline void allot_netdata_fail(
    allot_error_kind kind, size_t requested, const char *allocator, const char *name, const char *message)
{
    allot_error error;
    memset(&error, 0, sizeof error);
    error.kind = kind;
    error.system_error = kind == ALLOT_SYSTEM ? ENOMEM : 0;
    error.requested = requested;
    error.allocator = allocator;
    snprintf(error.name, sizeof error.name, "%s", name);
    snprintf(error.message, sizeof error.message, "%s", message);
    /* The one that is set can only be learned by setting another one. */
    allot_failure_handler *handler = allot_set_failure_handler(NULL);
    (void)allot_set_failure_handler(handler);
    if (handler != NULL) {
        handler(&error);
    } else {
        fprintf(stderr, "allotment: %s\n", error.message);
    }
    abort();
}

/* What an object of this size can need: a type's size is a multiple of its alignment. At least a pointer's, as with the
 * ancestors. */
static inline size_t allot_netdata_align(size_t size)
{
    return size != 0 && size % 16 == 0 ? 16 : 8;
}

#ifdef __cplusplus
}
#endif

#endif
