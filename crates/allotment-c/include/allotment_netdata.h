/* The interfaces of three older allocators, implemented with allotment.h, so that code written
 * against them compiles and runs unchanged:
 *
 *   ONEWAYALLOC         netdata's One Way Allocator            an allot_arena
 *   ARAL                netdata's Array Allocator              an allot_slab
 *   struct free_list    the fixed size free list of an essay   an allot_free_list
 *
 * Function names, parameters and their meaning are those of the original allocators; the
 * implementation is not. Include this header, or one of the headers that it includes, in place of
 * the original ones. Where the behaviour differs, the comment of the function says so.
 * docs/src/from-onewayalloc.md and docs/src/from-aral.md list every function in a table.
 *
 * Functions whose names end in z never return on failure: without memory they call the failure
 * handler, which by default prints one line and aborts (allot_set_failure_handler). The z does not
 * mean that memory is zeroed.
 *
 * Every function is a symbol of the library, and the functions that allocate and free are inline,
 * too. Code that only declares a function links. The symbols are weak: a program may have functions
 * of its own by these names. All units of a process share the library's statistics.
 *
 * C11 or C++17, like allotment.h.
 */
#ifndef ALLOTMENT_NETDATA_H
#define ALLOTMENT_NETDATA_H

#include "allotment/aral.h"
#include "allotment/list.h"
#include "allotment/onewayalloc.h"

#endif
