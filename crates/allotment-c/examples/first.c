/* The first program of the documentation. Compile and run it with
 *
 *   cc first.c -o first $(pkg-config --cflags --libs allotment) \
 *       -Wl,-rpath,"$(pkg-config --variable=libdir allotment)" && ./first
 */
#include <allotment.h>

#include <inttypes.h>
#include <stdio.h>

struct point {
    double x, y;
    struct point *next;
};

int main(void)
{
    allot_arena *arena = allot_arena_create(&(allot_options){.name = "query"});

    struct point *points = NULL;
    for (int i = 0; i < 1000; i++) {
        struct point *point = ALLOT_ARENA_NEW(arena, struct point);
        *point = (struct point){.x = i, .y = i * i, .next = points};
        points = point;
    }
    const char *title = allot_arena_strdup(arena, "a thousand points");

    allot_statistics statistics = allot_arena_statistics(arena);
    printf("%s: %" PRIu64 " objects of %" PRIu64 " bytes in all, the last at (%g, %g)\n", title,
           statistics.live_objects, statistics.live_bytes, points->x, points->y);

    allot_arena_destroy(arena); /* frees them all */
    return 0;
}
