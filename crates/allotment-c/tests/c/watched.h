/* Whether the library checks every object, so that objects have other addresses than usual: in hardened mode,
 * and for AddressSanitizer and Valgrind. */
#ifndef WATCHED_H
#define WATCHED_H

#include <allotment.h>

#include <stdlib.h>
#include <string.h>

static inline bool is_watched(void)
{
#ifdef ALLOT_OUT_OF_LINE
    return true;
#else
    /* Valgrind has its own libraries loaded first. */
    const char *first = getenv("LD_PRELOAD");
    return getenv("ALLOTMENT_HARDENED") != NULL || getenv("ALLOTMENT_PASSTHROUGH") != NULL || (first != NULL && strstr(first, "vgpreload") != NULL);
#endif
}

#endif
