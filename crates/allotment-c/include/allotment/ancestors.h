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

/* The inline functions of C call static ones of allotment.h, for which Clang warns: a definition that
 * is emitted elsewhere would call others. The only one emitted is the library's own. */
#if defined(__clang__) && !defined(__cplusplus)
#define ALLOT_NETDATA_BEGIN \
    _Pragma("clang diagnostic push") _Pragma("clang diagnostic ignored \"-Wstatic-in-inline\"")
#define ALLOT_NETDATA_END _Pragma("clang diagnostic pop")
#else
#define ALLOT_NETDATA_BEGIN
#define ALLOT_NETDATA_END
#endif

/* The alignment that an object of this size can need: a type's size is a multiple of its alignment.
 * At least that of a pointer, as with the original allocators. */
#define ALLOT_NETDATA_ALIGN(size) ((size_t)((size) != 0 && (size) % 16 == 0 ? 16 : 8))

#endif
