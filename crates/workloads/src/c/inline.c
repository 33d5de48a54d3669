/* Loops over the header's inline functions, each the shape of one that is written in Rust: the objects of a query
 * (`objects.rs`), and pairs of an allocation and a free (`fixed_size/live.rs`). */

#include <allotment.h>

#include <string.h>

/* Keeps the compiler from telling what a value is, or what is done with it. */
#define OPAQUE(value) __asm__ volatile("" : "+r"(value) : : "memory")

/* As the Rust side has them. */
static const size_t SIZES[4] = {192, 24, 40, 64};

/* One query's objects in an arena of its own: so many times the four sizes, every byte written. */
void workloads_c_arena_query(void **objects, size_t dimensions, unsigned char fill)
{
    allot_arena *arena = allot_arena_create(NULL);
    for (size_t dimension = 0; dimension < dimensions; dimension++) {
        for (size_t index = 0; index < 4; index++) {
            void *object = allot_arena_alloc_aligned(arena, SIZES[index], 8);
            memset(object, fill, SIZES[index]);
            objects[dimension * 4 + index] = object;
        }
    }
    OPAQUE(objects);
    allot_arena_destroy(arena);
}
