/* Allotment for C++17: memory allocators chosen by object lifetime and by the threads that use an
 * object.
 *
 *   what you have                             what to use
 *   containers of std::pmr                    arena_resource, pool_resource, slab_resource, ...
 *                                             (resource.hpp, slab_resource.hpp)
 *   a std::pmr::monotonic_buffer_resource     monotonic_buffer_resource (monotonic.hpp)
 *   containers that take an allocator type    arena_allocator<T>, pool_allocator<T>, ...
 *                                             (allocator.hpp)
 *   a std::unique_ptr                         arena_ptr<T>, pool_ptr<T>, slab_ptr<T>, ... (refs.hpp)
 *   a class whose objects are created by new  pooled (pooled.hpp)
 *   objects that never change after they      sealed<T>, read_only<T> (sealed.hpp)
 *   are built
 *   code in the style of the pattern          Allocator, Storage, String (pattern.hpp)
 *   Thread-local Memory Pool
 *   none of these                             arena, free_list<T>, slab<T>, reap, pool (owners.hpp)
 *
 * Everything is inline, in the namespace allot, and calls the functions of allotment.h. The rules
 * of that header apply: arenas, free lists, reaps, pools and slab handles belong to one thread at a
 * time. A call that fails throws allot::error, which is a std::bad_alloc (error.hpp). Functions
 * whose names begin with try_ return null instead. No exception crosses the C functions.
 */
#ifndef ALLOTMENT_HPP
#define ALLOTMENT_HPP

#if !defined(__cplusplus) || __cplusplus < 201703L
#error "allotment.hpp needs C++17: compile with -std=c++17 or later"
#endif

#include "allotment/allocator.hpp"
#include "allotment/error.hpp"
#include "allotment/monotonic.hpp"
#include "allotment/options.hpp"
#include "allotment/owners.hpp"
#include "allotment/pattern.hpp"
#include "allotment/pooled.hpp"
#include "allotment/refs.hpp"
#include "allotment/resource.hpp"
#include "allotment/sealed.hpp"
#include "allotment/shared_slabs.hpp"
#include "allotment/slab_resource.hpp"

#endif
