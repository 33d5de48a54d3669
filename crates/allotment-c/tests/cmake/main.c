#include <allotment.h>

#include <string.h>

int main(void)
{
    allot_arena *arena = allot_arena_create(NULL);
    const char *text = allot_arena_strdup(arena, "by CMake");
    int wrong = strcmp(text, "by CMake") != 0 || strcmp(allot_version(), ALLOT_VERSION) != 0;
    allot_arena_destroy(arena);
    return wrong;
}
