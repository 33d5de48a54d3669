/* Loops over the header's inline functions. Each has the shape of a loop in Rust: the objects of a query
 * (objects.rs), and pairs of an allocation and a free (fixed_size/live.rs). */

#include <allotment.h>

#include <string.h>

/* Keeps the compiler from omitting the write: it must assume that `at` is read later. */
#define SEEN_BY_OTHERS(at) __asm__ volatile("" : : "r"(at) : "memory")

/* An object, every byte written. */
static inline void *filled(allot_arena *arena, size_t size, unsigned char fill)
{
    return memset(allot_arena_alloc_aligned(arena, size, 8), fill, size);
}

/* One query's objects in an arena of its own, for each dimension the same as on the Rust side. */
void workloads_c_arena_query(void **objects, size_t dimensions, unsigned char fill)
{
    allot_arena *arena = allot_arena_create(NULL);
    for (size_t dimension = 0; dimension < dimensions; dimension++) {
        void **places = objects + 4 * dimension;
        places[0] = filled(arena, 192, fill);
        places[1] = filled(arena, 24, fill);
        places[2] = filled(arena, 40, fill);
        places[3] = filled(arena, 64, fill);
    }
    SEEN_BY_OTHERS(objects);
    allot_arena_destroy(arena);
}

/* Fills `count` places, and writes the objects' first words. */
void workloads_c_free_list_fill(allot_free_list *list, void **places, size_t count)
{
    for (size_t index = 0; index < count; index++) {
        places[index] = allot_free_list_alloc(list);
        *(uint64_t *)places[index] = index;
    }
}

void workloads_c_free_list_empty(allot_free_list *list, void **places, size_t count)
{
    for (size_t index = 0; index < count; index++) {
        allot_free_list_free(list, places[index]);
    }
}

/* Allocates and frees `pairs` objects. */
void workloads_c_free_list_pairs(allot_free_list *list, uint64_t pairs)
{
    for (uint64_t word = 0; word < pairs; word++) {
        uint64_t *object = (uint64_t *)allot_free_list_alloc(list);
        *object = word;
        allot_free_list_free(list, object);
    }
}

void workloads_c_slab_handle_fill(allot_slab_handle *handle, void **places, size_t count)
{
    for (size_t index = 0; index < count; index++) {
        places[index] = allot_slab_handle_alloc(handle);
        *(uint64_t *)places[index] = index;
    }
}

void workloads_c_slab_handle_empty(allot_slab_handle *handle, void **places, size_t count)
{
    for (size_t index = 0; index < count; index++) {
        allot_slab_handle_free(handle, places[index]);
    }
}

void workloads_c_slab_handle_pairs(allot_slab_handle *handle, uint64_t pairs)
{
    for (uint64_t word = 0; word < pairs; word++) {
        uint64_t *object = (uint64_t *)allot_slab_handle_alloc(handle);
        *object = word;
        allot_slab_handle_free(handle, object);
    }
}

/* The creating functions are inline in the header, so they are no symbols. */
allot_free_list *workloads_c_free_list(size_t size, size_t align)
{
    return allot_free_list_create(size, align, NULL);
}

allot_slab *workloads_c_slab(size_t size, size_t align)
{
    return allot_slab_create(size, align, NULL);
}

allot_slab_handle *workloads_c_slab_handle(allot_slab *slab)
{
    return allot_slab_handle_create(slab);
}
