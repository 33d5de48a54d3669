/* Allotment for C++17: memory allocators chosen by how long an object lives and who may touch it.
 *
 *   what you have                                       what to use
 *   containers of std::pmr                              arena_resource, pool_resource, slab_resource, ... (resource.hpp,
 *                                                       slab_resource.hpp)
 *   a std::pmr::monotonic_buffer_resource               monotonic_buffer_resource (monotonic.hpp)
 *   containers that take an allocator as a type         arena_allocator<T>, pool_allocator<T>, ... (allocator.hpp)
 *   a std::unique_ptr                                   arena_ptr<T>, pool_ptr<T>, slab_ptr<T>, ... (refs.hpp)
 *   a class whose objects are made by new               pooled (pooled.hpp)
 *   objects that never change once they are built       sealed<T>, read_only<T> (sealed.hpp)
 *   code in the style of the pattern Thread-local       Allocator, Storage, String (pattern.hpp)
 *   Memory Pool
 *   none of these                                       arena, free_list<T>, slab<T>, reap, pool (owners.hpp)
 *
 * Everything is in the namespace allot, inline, over the functions of allotment.h, whose rules hold here too: arenas, free
 * lists, reaps, pools and handles belong to one thread at a time. What can't be done throws allot::error, which is a
 * std::bad_alloc (error.hpp); calls named try_ return null instead. Nothing is thrown through the C functions.
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
