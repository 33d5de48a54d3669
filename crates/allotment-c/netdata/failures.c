/* Fails like a function of allotment.h without try_. */
#include "internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

void netdata_fail(
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
