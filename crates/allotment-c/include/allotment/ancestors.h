/* Shared parts of the headers of allotment_netdata.h. Internal: programs must not use it.
 */
#ifndef ALLOTMENT_ANCESTORS_H
#define ALLOTMENT_ANCESTORS_H

#include "../allotment.h"

#include <string.h>

/* A function that is inline and a symbol of the library, too: code that only declares it links, and
 * no declaration clashes with it. The library's own file symbols.c turns each inline definition
 * into the symbol. These symbols are weak: a program's own function of that name replaces one. */
#ifdef __cplusplus
#define ALLOT_NETDATA_INLINE inline
#elif defined(ALLOT_NETDATA_SYMBOLS)
#define ALLOT_NETDATA_INLINE __attribute__((weak, visibility("default")))
#else
#define ALLOT_NETDATA_INLINE extern inline __attribute__((gnu_inline))
#endif

/* The alignment that an object of this size can need: a type's size is a multiple of its alignment.
 * At least that of a pointer, as with the original allocators. */
#define ALLOT_NETDATA_ALIGN(size) ((size_t)((size) != 0 && (size) % 16 == 0 ? 16 : 8))

#endif
