/* Shared parts of the headers of allotment_netdata.h. Internal: programs must not use it.
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

/* Fails like a function without try_: calls the failure handler, then aborts. */
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
    /* Setting a handler is the only way to read the current one. */
    allot_failure_handler *handler = allot_set_failure_handler(NULL);
    (void)allot_set_failure_handler(handler);
    if (handler != NULL) {
        handler(&error);
    } else {
        fprintf(stderr, "allotment: %s\n", error.message);
    }
    abort();
}

/* The alignment that an object of this size can need: a type's size is a multiple of its alignment.
 * At least that of a pointer, as with the original allocators. */
static inline size_t allot_netdata_align(size_t size)
{
    return size != 0 && size % 16 == 0 ? 16 : 8;
}

#ifdef __cplusplus
}
#endif

#endif
