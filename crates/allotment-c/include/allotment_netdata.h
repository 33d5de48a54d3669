/* The names of three ancestors, over allotment.h, so that code written against them runs here unchanged:
 *
 *   ONEWAYALLOC         netdata's One Way Allocator            an allot_arena
 *   ARAL                netdata's Array Allocator              an allot_slab
 *   struct free_list    the fixed size free list of an essay   an allot_free_list
 *
 * The names, their parameters and what they mean are the ancestors'; nothing else is. Include it in place of their
 * headers, or one of those that it includes. Where it can't do the same it does what is said beside the function;
 * docs/src/from-onewayalloc.md and docs/src/from-aral.md put all of it in tables.
 *
 * Functions that end in z never fail to their caller: where there is no memory they call the failure handler, which by
 * default prints one line and aborts (allot_set_failure_handler). z says nothing about zeros.
 *
 * What all translation units of a program share (the list of ARALs, the count of arenas' bytes) are weak variables
 * allot_netdata_*, which the linker makes one.
 *
 * C11 or C++17, as allotment.h.
 */
#ifndef ALLOTMENT_NETDATA_H
#define ALLOTMENT_NETDATA_H

#include "allotment/aral.h"
#include "allotment/list.h"
#include "allotment/onewayalloc.h"

#endif
